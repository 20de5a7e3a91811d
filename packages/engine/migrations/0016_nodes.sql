-- Several servers with their own data directories on one database: the nodes, and which of them owns what.

CREATE TABLE nodes (
  name TEXT PRIMARY KEY,
  -- Where the other nodes reach its server.
  address TEXT NOT NULL,
  data_directory_id TEXT NOT NULL,
  -- Raised when the node is fenced. What a server writes under an older epoch is refused.
  epoch {integer} NOT NULL,
  -- Times of the database's clock, never of a server's.
  lease_until {integer} NOT NULL,
  -- Since when the lease was held without a gap.
  held_since {integer} NOT NULL,
  joined_at {integer} NOT NULL,
  -- When its epoch was last raised, and its sandboxes were taken from it; null once its server is back.
  fenced_at {integer},
  version TEXT NOT NULL,
  memory_mb {integer} NOT NULL,
  processors {integer} NOT NULL,
  disk_bytes {integer} NOT NULL DEFAULT 0,
  disk_free_bytes {integer} NOT NULL DEFAULT 0,
  -- JSON: for each runtime, what its memory images need of a machine.
  fingerprint TEXT NOT NULL DEFAULT '{}',
  cordoned {integer} NOT NULL DEFAULT 0,
  draining {integer} NOT NULL DEFAULT 0,
  drain TEXT,
  forgotten {integer} NOT NULL DEFAULT 0,
  -- A key with the epoch: a change of the epoch waits for every transaction that has looked at it, a heartbeat does not.
  UNIQUE (name, epoch)
) {strict};

-- One server without a node name calls its node `local`.
ALTER TABLE servers ADD COLUMN node TEXT NOT NULL DEFAULT 'local';
-- The node that runs the sandbox, or has run it last.
ALTER TABLE sandboxes ADD COLUMN node TEXT NOT NULL DEFAULT 'local';
-- The node that has sealed the checkpoint, and has its bytes on its disk.
ALTER TABLE checkpoints ADD COLUMN node TEXT NOT NULL DEFAULT 'local';
-- What its memory image needs of a machine; null: it has no memory, or nobody knows.
ALTER TABLE checkpoints ADD COLUMN fingerprint TEXT;
-- The node that writes or has written the object.
ALTER TABLE stored_objects ADD COLUMN node TEXT NOT NULL DEFAULT 'local';

CREATE INDEX sandboxes_by_node ON sandboxes (node, state, id);

-- Runs of sandboxes that another node went on with, or gave up, while their own node was away. When it is back, it seals what
-- is left of each as a checkpoint, and deletes the row.
CREATE TABLE fenced_runs (
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  generation {integer} NOT NULL,
  node TEXT NOT NULL,
  -- The last event of the run, and what the run stood on.
  seq {integer} NOT NULL,
  base_id TEXT,
  fenced_at {integer} NOT NULL,
  PRIMARY KEY (sandbox_id, generation)
) {strict};
CREATE INDEX fenced_runs_by_node ON fenced_runs (node);

-- A running sandbox is sealed in place this often; null: not.
ALTER TABLE sandboxes ADD COLUMN checkpoint_every_ms {integer};
CREATE INDEX sandboxes_to_checkpoint ON sandboxes (id) WHERE checkpoint_every_ms IS NOT NULL;
