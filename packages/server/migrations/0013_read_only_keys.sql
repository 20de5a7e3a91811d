-- A key that sees everything of its organisation and changes nothing.
ALTER TABLE api_keys ADD COLUMN read_only {integer} NOT NULL DEFAULT 0 CHECK (read_only IN (0, 1));
