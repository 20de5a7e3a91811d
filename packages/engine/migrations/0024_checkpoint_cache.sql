-- What the checkpoints and layers on the disk of a node take, and the bound for it. Null: no store, or no bound.
ALTER TABLE nodes ADD COLUMN cache_bytes {integer};
ALTER TABLE nodes ADD COLUMN cache_limit_bytes {integer};
