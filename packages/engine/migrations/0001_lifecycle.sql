-- Sandboxes, their ledger, checkpoints and operations.
--
-- What always holds is held here where SQL can: a paused sandbox has a sealed checkpoint of its own, a
-- state is that of the sandbox's last event, events have no gaps and only make legal steps, and there is
-- one open operation per sandbox. The engine is written so that it never runs into these; they are the
-- proof that nothing else can get past them either.

CREATE TABLE transitions (
  from_state TEXT NOT NULL,
  to_state TEXT NOT NULL,
  PRIMARY KEY (from_state, to_state)
) {strict};

INSERT INTO transitions (from_state, to_state) VALUES
  ('creating', 'creating'), ('running', 'running'), ('pausing', 'pausing'), ('paused', 'paused'),
  ('resuming', 'resuming'), ('killing', 'killing'), ('killed', 'killed'), ('failed', 'failed'),
  ('lost', 'lost'),
  ('creating', 'running'), ('creating', 'failed'), ('creating', 'killing'),
  ('running', 'pausing'), ('running', 'paused'), ('running', 'killing'), ('running', 'lost'),
  ('pausing', 'paused'), ('pausing', 'running'), ('pausing', 'killing'), ('pausing', 'lost'),
  ('paused', 'resuming'), ('paused', 'killing'), ('paused', 'lost'),
  ('resuming', 'running'), ('resuming', 'paused'), ('resuming', 'killing'), ('resuming', 'lost'),
  ('killing', 'killed');

-- The data directory whose sandboxes and checkpoints this database speaks of. A server that has another
-- one would find nothing of them, and must not conclude anything from that.
CREATE TABLE home (
  one {integer} PRIMARY KEY CHECK (one = 1),
  id TEXT NOT NULL
) {strict};

-- Servers that work on this database. An operation whose server's lease ran out is taken over.
CREATE TABLE servers (
  id TEXT PRIMARY KEY,
  started_at {integer} NOT NULL,
  lease_until {integer} NOT NULL
) {strict};

CREATE TABLE checkpoints (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  -- Whose run it sealed; null for one that was made as a template.
  sandbox_id TEXT,
  generation {integer},
  -- The sandbox's seq when it was begun: the order of a sandbox's checkpoints, whatever the clock did.
  seq {integer} NOT NULL,
  parent_id TEXT REFERENCES checkpoints (id),
  runtime TEXT NOT NULL,
  -- Which operation writes it; null for a template's.
  operation_id TEXT,
  state TEXT NOT NULL CHECK (state IN ('writing', 'sealed', 'deleted')),
  -- The state as a number, for foreign keys that must find a sealed one.
  sealed {integer} NOT NULL CHECK (sealed = CASE WHEN state = 'sealed' THEN 1 ELSE 0 END),
  has_files {integer} NOT NULL,
  has_memory {integer} NOT NULL,
  needs TEXT NOT NULL,
  external {integer} NOT NULL,
  replayable {integer} NOT NULL,
  recovered {integer} NOT NULL,
  -- Asked for as such: it stays until it is deleted or expires, with or without a name.
  kept {integer} NOT NULL DEFAULT 0,
  location TEXT,
  bytes {integer},
  health TEXT NOT NULL CHECK (health IN ('ok', 'damaged', 'unknown')),
  health_code TEXT,
  health_detail TEXT,
  verified_at {integer},
  -- When somebody last tried to read all of it, with or without success.
  scrubbed_at {integer} NOT NULL DEFAULT 0,
  created_at {integer} NOT NULL,
  sealed_at {integer},
  deleted_at {integer},
  -- The bytes of a deleted one are removed after its row says so, and this is set after that.
  removed_at {integer},
  expires_at {integer},
  expiry_announced_at {integer},
  UNIQUE (id, sealed),
  UNIQUE (id, sandbox_id, sealed)
) {strict};

CREATE INDEX checkpoints_by_sandbox ON checkpoints (sandbox_id, seq);
CREATE INDEX checkpoints_writing ON checkpoints (id) WHERE state = 'writing';
CREATE INDEX checkpoints_by_operation ON checkpoints (operation_id);
CREATE INDEX checkpoints_to_remove ON checkpoints (id) WHERE state = 'deleted' AND removed_at IS NULL;
CREATE INDEX checkpoints_by_expiry ON checkpoints (expires_at) WHERE state = 'sealed' AND expires_at IS NOT NULL;
CREATE INDEX checkpoints_to_scrub ON checkpoints (scrubbed_at, id) WHERE state = 'sealed';
CREATE INDEX checkpoints_sealed ON checkpoints (id) WHERE state = 'sealed';

-- A checkpoint that stands on another keeps it: the other cannot stop being sealed.
CREATE TABLE checkpoint_stands_on (
  checkpoint_id TEXT NOT NULL REFERENCES checkpoints (id),
  other_id TEXT NOT NULL,
  other_sealed {integer} NOT NULL DEFAULT 1 CHECK (other_sealed = 1),
  PRIMARY KEY (checkpoint_id, other_id),
  FOREIGN KEY (other_id, other_sealed) REFERENCES checkpoints (id, sealed)
) {strict};
CREATE INDEX checkpoint_stands_on_other ON checkpoint_stands_on (other_id);

-- A name keeps its checkpoint. The sandbox whose name it is may be long dead.
CREATE TABLE checkpoint_names (
  sandbox_id TEXT NOT NULL,
  name TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  checkpoint_sealed {integer} NOT NULL DEFAULT 1 CHECK (checkpoint_sealed = 1),
  created_at {integer} NOT NULL,
  PRIMARY KEY (sandbox_id, name),
  FOREIGN KEY (checkpoint_id, checkpoint_sealed) REFERENCES checkpoints (id, sealed)
) {strict};
CREATE INDEX checkpoint_names_by_checkpoint ON checkpoint_names (checkpoint_id);

-- Named first checkpoints: an organisation's own, and with the empty organisation those that everybody has.
CREATE TABLE templates (
  org TEXT NOT NULL,
  name TEXT NOT NULL,
  runtime TEXT NOT NULL,
  -- What a sandbox made from it is given beside its files: services, env; and what people should know of it.
  definition TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('preparing', 'ready', 'failed')),
  checkpoint_id TEXT,
  checkpoint_sealed {integer} NOT NULL DEFAULT 1 CHECK (checkpoint_sealed = 1),
  -- While it is prepared: by which server, into which checkpoint, and how far it has come.
  owner TEXT,
  writing_id TEXT REFERENCES checkpoints (id),
  phase TEXT,
  error TEXT,
  created_at {integer} NOT NULL,
  PRIMARY KEY (org, name, runtime),
  CHECK ((state = 'ready') = (checkpoint_id IS NOT NULL)),
  CHECK ((state = 'preparing') = (owner IS NOT NULL)),
  CHECK ((state = 'preparing') = (writing_id IS NOT NULL)),
  CHECK ((state = 'failed') = (error IS NOT NULL)),
  FOREIGN KEY (checkpoint_id, checkpoint_sealed) REFERENCES checkpoints (id, sealed)
) {strict};
-- A built-in one is there for each runtime; anybody else's name means one thing.
CREATE UNIQUE INDEX templates_own ON templates (org, name) WHERE org <> '';
CREATE INDEX templates_by_checkpoint ON templates (checkpoint_id);
CREATE INDEX templates_by_writing ON templates (writing_id) WHERE writing_id IS NOT NULL;

CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  name TEXT,
  runtime TEXT NOT NULL,
  template TEXT,
  -- What the caller asked for and nobody searches by: env, services, network, resources, fallback…
  config TEXT NOT NULL,
  metadata TEXT NOT NULL,
  timeout_ms {integer},
  on_timeout TEXT NOT NULL CHECK (on_timeout IN ('pause', 'kill')),
  idle_ms {integer} NOT NULL,
  on_idle TEXT NOT NULL CHECK (on_idle IN ('pause', 'kill', 'keep')),

  -- The last event, projected by the trigger below and by nothing else.
  state TEXT NOT NULL,
  seq {integer} NOT NULL CHECK (seq > 0 OR state = 'creating'),
  generation {integer} NOT NULL,
  -- What the present run stands on; kept while it runs.
  base_id TEXT,
  base_sealed {integer} NOT NULL DEFAULT 1 CHECK (base_sealed = 1),
  -- The last checkpoint sealed from this sandbox's own run: where it comes back to.
  checkpoint_id TEXT,
  checkpoint_sealed {integer} NOT NULL DEFAULT 1 CHECK (checkpoint_sealed = 1),

  ends_at {integer},
  lost TEXT NOT NULL,
  reason TEXT,
  observed_at {integer} NOT NULL,
  evidence TEXT NOT NULL,
  created_at {integer} NOT NULL,
  started_at {integer},

  CHECK (state <> 'paused' OR checkpoint_id IS NOT NULL),
  -- {sqlite}
  FOREIGN KEY (id, seq, state) REFERENCES events (sandbox_id, seq, state) DEFERRABLE INITIALLY DEFERRED,
  -- {end}
  FOREIGN KEY (base_id, base_sealed) REFERENCES checkpoints (id, sealed),
  FOREIGN KEY (checkpoint_id, id, checkpoint_sealed) REFERENCES checkpoints (id, sandbox_id, sealed)
) {strict};

CREATE INDEX sandboxes_by_org ON sandboxes (org, id);
CREATE INDEX sandboxes_by_state ON sandboxes (state, id);
CREATE INDEX sandboxes_by_deadline ON sandboxes (state, ends_at);
CREATE INDEX sandboxes_by_base ON sandboxes (base_id);
CREATE INDEX sandboxes_by_checkpoint ON sandboxes (checkpoint_id);
-- A name is free again when its sandbox is gone.
CREATE UNIQUE INDEX sandboxes_name ON sandboxes (org, name)
  WHERE name IS NOT NULL AND state NOT IN ('killed', 'failed', 'lost');

CREATE TABLE sandbox_metadata (
  org TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  PRIMARY KEY (org, key, value, sandbox_id)
) {strict};

-- The coarse heartbeat of work that holds a sandbox awake; the leases themselves are counted in memory.
-- Only running sandboxes have a row; `idle_at` is null for those that may be idle as long as they like.
CREATE TABLE sandbox_activity (
  sandbox_id TEXT PRIMARY KEY REFERENCES sandboxes (id),
  active_at {integer} NOT NULL,
  idle_at {integer}
) {strict};
CREATE INDEX sandbox_activity_by_idleness ON sandbox_activity (idle_at) WHERE idle_at IS NOT NULL;

CREATE TABLE operations (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  -- The operation that made this one: a fork, for its children's creates.
  parent_id TEXT REFERENCES operations (id),
  kind TEXT NOT NULL
    CHECK (kind IN ('create', 'pause', 'resume', 'fork', 'snapshot', 'rollback', 'recover', 'kill')),
  request TEXT NOT NULL,
  reason TEXT NOT NULL,
  -- Who drives it, and how often that has changed: a former owner's writes carry an old fence.
  owner TEXT NOT NULL,
  fence {integer} NOT NULL,
  phase TEXT,
  started_at {integer} NOT NULL,
  deadline_at {integer} NOT NULL,
  ended_at {integer},
  outcome TEXT CHECK (outcome IN ('succeeded', 'failed', 'superseded')),
  result TEXT,
  error TEXT,
  CHECK ((ended_at IS NULL) = (outcome IS NULL)),
  CHECK (outcome IS NULL OR (outcome = 'succeeded') = (error IS NULL))
) {strict};

CREATE UNIQUE INDEX operations_one_at_a_time ON operations (sandbox_id) WHERE ended_at IS NULL;
CREATE INDEX operations_open ON operations (id) WHERE ended_at IS NULL;
CREATE INDEX operations_by_parent ON operations (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX operations_by_sandbox ON operations (sandbox_id, started_at, id);
CREATE INDEX operations_by_org ON operations (org, started_at, id);

CREATE TABLE idempotency_keys (
  org TEXT NOT NULL,
  route TEXT NOT NULL,
  key TEXT NOT NULL,
  body_hash TEXT NOT NULL,
  -- Checked at the commit: the key is taken before its operation is written, so that a twin waits for it.
  operation_id TEXT NOT NULL REFERENCES operations (id) DEFERRABLE INITIALLY DEFERRED,
  expires_at {integer} NOT NULL,
  PRIMARY KEY (org, route, key)
) {strict};
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_by_operation ON idempotency_keys (operation_id);

-- The last position given out. Every transaction that writes events locks it last, so that the order of
-- positions is the order of commits and a reader who has seen position n has seen all before it.
CREATE TABLE ledger_head (
  one {integer} PRIMARY KEY CHECK (one = 1),
  position {integer} NOT NULL
) {strict};
INSERT INTO ledger_head (one, position) VALUES (1, 0);

CREATE TABLE events (
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  seq {integer} NOT NULL,
  position {integer} NOT NULL UNIQUE,
  id TEXT NOT NULL UNIQUE,
  org TEXT NOT NULL,
  at {integer} NOT NULL,
  type TEXT NOT NULL,
  previous_seq {integer},
  previous_state TEXT,
  state TEXT NOT NULL,
  generation {integer} NOT NULL,
  base_id TEXT,
  checkpoint_id TEXT,
  operation_id TEXT,
  data TEXT NOT NULL,
  PRIMARY KEY (sandbox_id, seq),
  UNIQUE (sandbox_id, seq, state),
  CHECK (
    (seq = 1 AND previous_seq IS NULL AND previous_state IS NULL AND state = 'creating')
    OR (seq > 1 AND previous_seq IS NOT NULL AND previous_seq = seq - 1 AND previous_state IS NOT NULL)
  ),
  CHECK (state <> 'paused' OR checkpoint_id IS NOT NULL),
  FOREIGN KEY (sandbox_id, previous_seq, previous_state) REFERENCES events (sandbox_id, seq, state),
  FOREIGN KEY (previous_state, state) REFERENCES transitions (from_state, to_state)
) {strict};
CREATE INDEX events_by_org ON events (org, position);

-- {sqlite}
CREATE TRIGGER events_are_projected AFTER INSERT ON events
BEGIN
  SELECT RAISE(ABORT, 'event out of sequence')
  WHERE NEW.seq IS NOT (SELECT seq + 1 FROM sandboxes WHERE id = NEW.sandbox_id)
     OR NEW.position IS NOT (SELECT position FROM ledger_head);
  UPDATE sandboxes
  SET state = NEW.state, seq = NEW.seq, generation = NEW.generation,
      base_id = NEW.base_id, checkpoint_id = NEW.checkpoint_id
  WHERE id = NEW.sandbox_id;
END;

CREATE TRIGGER sandboxes_follow_events
BEFORE UPDATE OF state, seq, generation, base_id, checkpoint_id ON sandboxes
WHEN NOT EXISTS (
    SELECT 1 FROM events
    WHERE sandbox_id = NEW.id AND seq = NEW.seq AND state = NEW.state AND generation = NEW.generation
      AND base_id IS NEW.base_id AND checkpoint_id IS NEW.checkpoint_id
  )
  OR EXISTS (SELECT 1 FROM events WHERE sandbox_id = NEW.id AND seq = NEW.seq + 1)
BEGIN
  SELECT RAISE(ABORT, 'state is written by events alone');
END;

CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN
  SELECT RAISE(ABORT, 'the ledger is append-only');
END;

CREATE TRIGGER events_never_go BEFORE DELETE ON events
BEGIN
  SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- {end}

-- {postgres}
ALTER TABLE sandboxes ADD CONSTRAINT sandboxes_state_is_an_events
  FOREIGN KEY (id, seq, state) REFERENCES events (sandbox_id, seq, state) DEFERRABLE INITIALLY DEFERRED;

CREATE FUNCTION torpor_project_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.seq IS DISTINCT FROM (SELECT seq + 1 FROM sandboxes WHERE id = NEW.sandbox_id)
     OR NEW.position IS DISTINCT FROM (SELECT position FROM ledger_head) THEN
    RAISE EXCEPTION 'event out of sequence' USING ERRCODE = 'check_violation';
  END IF;
  UPDATE sandboxes
  SET state = NEW.state, seq = NEW.seq, generation = NEW.generation,
      base_id = NEW.base_id, checkpoint_id = NEW.checkpoint_id
  WHERE id = NEW.sandbox_id;
  RETURN NULL;
END $$;
CREATE TRIGGER events_are_projected AFTER INSERT ON events
  FOR EACH ROW EXECUTE FUNCTION torpor_project_event();

CREATE FUNCTION torpor_follow_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (
      SELECT 1 FROM events
      WHERE sandbox_id = NEW.id AND seq = NEW.seq AND state = NEW.state AND generation = NEW.generation
        AND base_id IS NOT DISTINCT FROM NEW.base_id AND checkpoint_id IS NOT DISTINCT FROM NEW.checkpoint_id
    )
    OR EXISTS (SELECT 1 FROM events WHERE sandbox_id = NEW.id AND seq = NEW.seq + 1) THEN
    RAISE EXCEPTION 'state is written by events alone' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER sandboxes_follow_events
  BEFORE UPDATE OF state, seq, generation, base_id, checkpoint_id ON sandboxes
  FOR EACH ROW EXECUTE FUNCTION torpor_follow_events();

CREATE FUNCTION torpor_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the ledger is append-only' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER events_never_change BEFORE UPDATE OR DELETE ON events
  FOR EACH ROW EXECUTE FUNCTION torpor_ledger_is_append_only();
-- {end}
