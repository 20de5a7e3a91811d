-- What is known against each part of a checkpoint, and for which checkpoint a sandbox is lost.

-- A JSON array of {part, found, code, detail, foundAt}: at most one fault for each part and way of finding it.
ALTER TABLE checkpoints ADD COLUMN faults TEXT NOT NULL DEFAULT '[]';

-- Whether it is damaged because its files are not there, for counting.
ALTER TABLE checkpoints ADD COLUMN files_missing {integer} NOT NULL DEFAULT 0;

-- Of older damage it is not known which part it is in, so both count as damaged until they are read again.
UPDATE checkpoints SET faults =
  '[{"part":"files","found":"contents","code":"checkpoint_corrupt","detail":"It was found damaged.","foundAt":0}]'
  WHERE health = 'damaged' AND has_memory = 0;
UPDATE checkpoints SET faults =
  '[{"part":"files","found":"contents","code":"checkpoint_corrupt","detail":"It was found damaged.","foundAt":0},{"part":"memory","found":"contents","code":"checkpoint_corrupt","detail":"It was found damaged.","foundAt":0}]'
  WHERE health = 'damaged' AND has_memory = 1;

CREATE INDEX checkpoints_unhealthy ON checkpoints (health, files_missing) WHERE state = 'sealed' AND health <> 'ok';
CREATE INDEX checkpoints_by_org ON checkpoints (org, id) WHERE state = 'sealed';

-- JSON of {checkpointId, location, code}: the checkpoint row itself is collected once the sandbox is lost.
ALTER TABLE sandboxes ADD COLUMN lost_checkpoint TEXT;

-- The newest sandbox of a name, also among those that have ended.
CREATE INDEX sandboxes_by_name ON sandboxes (org, name, created_at) WHERE name IS NOT NULL;
