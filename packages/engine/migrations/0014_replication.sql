-- Sealed checkpoints that are also kept in a store outside this machine, and the objects that they consist of there.

-- When the last of its objects was stored; null: not yet, or the server has no store.
ALTER TABLE checkpoints ADD COLUMN replicated_at {integer};
-- The next try, after failures; the failure of the last try as JSON.
ALTER TABLE checkpoints ADD COLUMN replicate_after {integer} NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN replica_failures {integer} NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN replica_error TEXT;

CREATE INDEX checkpoints_to_replicate ON checkpoints (sealed_at, id)
  WHERE state = 'sealed' AND external = 0 AND replicated_at IS NULL;

-- Every object that may be in a store. The row is there before the first byte is, and until the last one is gone.
CREATE TABLE stored_objects (
  key TEXT PRIMARY KEY,
  -- The address of the store.
  store TEXT NOT NULL,
  kind TEXT NOT NULL,
  -- What the object holds: a checkpoint, a layer, a program.
  subject TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('writing', 'stored', 'deleting')),
  -- Of the content before its encryption.
  bytes {integer},
  sha256 TEXT,
  -- The data key that decrypts it.
  key_id TEXT,
  created_at {integer} NOT NULL,
  CHECK (state <> 'stored' OR (bytes IS NOT NULL AND sha256 IS NOT NULL AND key_id IS NOT NULL))
) {strict};
-- A key is never used twice, so there may be several objects of one subject. One of them at most is not being deleted.
CREATE UNIQUE INDEX stored_objects_by_subject ON stored_objects (store, kind, subject) WHERE state <> 'deleting';
CREATE INDEX stored_objects_to_delete ON stored_objects (key) WHERE state = 'deleting';

-- Which objects a checkpoint needs. Layers and programs are shared by many checkpoints.
CREATE TABLE checkpoint_objects (
  checkpoint_id TEXT NOT NULL REFERENCES checkpoints (id),
  key TEXT NOT NULL REFERENCES stored_objects (key),
  PRIMARY KEY (checkpoint_id, key)
) {strict};
CREATE INDEX checkpoint_objects_by_key ON checkpoint_objects (key);
