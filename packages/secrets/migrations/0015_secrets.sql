-- Header values that the egress puts into requests of sandboxes.
CREATE TABLE secrets (
  org TEXT NOT NULL,
  name TEXT NOT NULL,
  host TEXT NOT NULL,
  header TEXT NOT NULL,
  prefix TEXT,
  -- As JSON; null: all methods.
  methods TEXT,
  path TEXT,
  -- Encrypted with a key of the data directory, and bound to organisation, name, host, header and prefix.
  value TEXT NOT NULL,
  -- 1: made from a rule of one request. It is not listed, and goes when no sandbox uses it.
  generated {integer} NOT NULL CHECK (generated IN (0, 1)),
  created_at {integer} NOT NULL,
  updated_at {integer} NOT NULL,
  PRIMARY KEY (org, name)
) {strict};
