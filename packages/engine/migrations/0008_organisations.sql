-- Organisations with their quotas, the right to manage them, and what each has used.

CREATE TABLE orgs (
  -- The slug that every other table names the organisation by.
  id TEXT PRIMARY KEY,
  created_at {integer} NOT NULL,
  -- A deleted organisation keeps its row: nobody may take its id and find its ledger.
  deleted_at {integer},
  -- Quotas; null is no limit.
  running_sandboxes {integer} CHECK (running_sandboxes >= 0),
  sandboxes {integer} CHECK (sandboxes >= 0),
  memory_mb {integer} CHECK (memory_mb >= 0),
  disk_mb {integer} CHECK (disk_mb >= 0),
  running_builds {integer} CHECK (running_builds >= 0),
  queued_builds {integer} CHECK (queued_builds >= 0)
) {strict};

-- Every organisation that anything belongs to so far, and the one that a server starts with.
INSERT INTO orgs (id, created_at)
SELECT org, MIN(created_at) FROM (
  SELECT org, created_at FROM api_keys
  UNION ALL SELECT org, created_at FROM sandboxes
  UNION ALL SELECT org, created_at FROM checkpoints
  UNION ALL SELECT org, created_at FROM templates
  UNION ALL SELECT org, created_at FROM build_projects
  UNION ALL SELECT org, created_at FROM sessions
  -- {sqlite}
  UNION ALL SELECT 'default', CAST(unixepoch('subsec') * 1000 AS INTEGER)
  -- {end}
  -- {postgres}
  UNION ALL SELECT 'default', CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)
  -- {end}
) AS known
WHERE org <> ''
GROUP BY org;

-- Whether the key may manage organisations. The keys that servers were started with so far may.
ALTER TABLE api_keys ADD COLUMN operator {integer} NOT NULL DEFAULT 0 CHECK (operator IN (0, 1));
UPDATE api_keys SET operator = 1
WHERE org = 'default' AND subject IS NULL AND name IN ('first', 'TORPOR_API_KEY');

-- The memory that a sandbox may use; null where its runtime limits none, and for older ones that did not say.
ALTER TABLE sandboxes ADD COLUMN memory_mb {integer};
-- Whether its runtime counts the bytes it exchanges with the outside.
ALTER TABLE sandboxes ADD COLUMN counts_egress {integer} NOT NULL DEFAULT 0;
-- {sqlite}
UPDATE sandboxes SET memory_mb = json_extract(config, '$.resources.memoryMb');
-- {end}
-- {postgres}
UPDATE sandboxes SET memory_mb = CAST(CAST(config AS json) -> 'resources' ->> 'memoryMb' AS BIGINT);
-- {end}

CREATE INDEX checkpoints_by_deletion ON checkpoints (org, deleted_at);
-- What quotas count, without those that are long over.
CREATE INDEX sandboxes_kept ON sandboxes (org)
  WHERE state IN ('creating', 'running', 'pausing', 'paused', 'resuming');

-- When each sandbox ran and when it slept, projected from the ledger by the trigger below. A sandbox that is
-- being paused still runs, one that is being resumed still sleeps.
CREATE TABLE usage_spans (
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  -- The event that began it.
  seq {integer} NOT NULL,
  org TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('running', 'paused')),
  memory_mb {integer},
  counts_egress {integer} NOT NULL,
  started_at {integer} NOT NULL,
  ended_at {integer},
  PRIMARY KEY (sandbox_id, seq),
  CHECK (ended_at >= started_at)
) {strict};
CREATE UNIQUE INDEX usage_spans_open ON usage_spans (sandbox_id) WHERE ended_at IS NULL;
CREATE INDEX usage_spans_open_by_org ON usage_spans (org) WHERE ended_at IS NULL;
CREATE INDEX usage_spans_by_org ON usage_spans (org, ended_at);

-- The sum of an organisation's ended spans, so that its whole history need not be read for a counter.
CREATE TABLE usage_totals (
  org TEXT NOT NULL,
  kind TEXT NOT NULL,
  ms {integer} NOT NULL,
  PRIMARY KEY (org, kind)
) {strict};

-- Bytes between sandboxes and the outside, by the hour in which they were counted.
CREATE TABLE usage_egress (
  org TEXT NOT NULL,
  -- The beginning of the hour.
  hour {integer} NOT NULL,
  sent {integer} NOT NULL,
  received {integer} NOT NULL,
  PRIMARY KEY (org, hour)
) {strict};

INSERT INTO usage_spans (sandbox_id, seq, org, kind, memory_mb, counts_egress, started_at, ended_at)
SELECT turns.sandbox_id, turns.seq, turns.org, turns.kind, s.memory_mb, 0, turns.at,
  -- A clock that went back must not make a span of negative length.
  CASE WHEN turns.next_at < turns.at THEN turns.at ELSE turns.next_at END
FROM (
  SELECT changes.*, LEAD(at) OVER (PARTITION BY sandbox_id ORDER BY seq) AS next_at
  FROM (
    SELECT steps.*, LAG(kind) OVER (PARTITION BY sandbox_id ORDER BY seq) AS previous_kind
    FROM (
      SELECT sandbox_id, seq, org, at,
        CASE WHEN state IN ('running', 'pausing') THEN 'running'
             WHEN state IN ('paused', 'resuming') THEN 'paused'
             ELSE 'neither' END AS kind
      FROM events
    ) AS steps
  ) AS changes
  WHERE previous_kind IS NULL OR previous_kind <> kind
) AS turns
JOIN sandboxes s ON s.id = turns.sandbox_id
WHERE turns.kind <> 'neither';

INSERT INTO usage_totals (org, kind, ms)
SELECT org, kind, SUM(ended_at - started_at) FROM usage_spans WHERE ended_at IS NOT NULL GROUP BY org, kind;

-- {sqlite}
CREATE TRIGGER usage_follows_events AFTER INSERT ON events
WHEN (CASE WHEN NEW.state IN ('running', 'pausing') THEN 1 WHEN NEW.state IN ('paused', 'resuming') THEN 2 ELSE 0 END)
  <> (CASE WHEN NEW.previous_state IN ('running', 'pausing') THEN 1
           WHEN NEW.previous_state IN ('paused', 'resuming') THEN 2 ELSE 0 END)
BEGIN
  UPDATE usage_spans SET ended_at = MAX(started_at, NEW.at)
  WHERE sandbox_id = NEW.sandbox_id AND ended_at IS NULL;
  INSERT INTO usage_totals (org, kind, ms)
  SELECT org, kind, ended_at - started_at FROM usage_spans
  WHERE sandbox_id = NEW.sandbox_id
    AND seq = (SELECT MAX(seq) FROM usage_spans WHERE sandbox_id = NEW.sandbox_id)
    AND NEW.previous_state IN ('running', 'pausing', 'paused', 'resuming')
  ON CONFLICT (org, kind) DO UPDATE SET ms = ms + excluded.ms;
  INSERT INTO usage_spans (sandbox_id, seq, org, kind, memory_mb, counts_egress, started_at)
  SELECT NEW.sandbox_id, NEW.seq, NEW.org,
    CASE WHEN NEW.state IN ('running', 'pausing') THEN 'running' ELSE 'paused' END,
    memory_mb, counts_egress, NEW.at
  FROM sandboxes
  WHERE id = NEW.sandbox_id AND NEW.state IN ('running', 'pausing', 'paused', 'resuming');
END;
-- {end}

-- {postgres}
CREATE FUNCTION torpor_usage_kind(state TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN state IN ('running', 'pausing') THEN 'running'
              WHEN state IN ('paused', 'resuming') THEN 'paused' END
$$;

CREATE FUNCTION torpor_project_usage() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  ended RECORD;
BEGIN
  IF torpor_usage_kind(NEW.state) IS NOT DISTINCT FROM torpor_usage_kind(NEW.previous_state) THEN
    RETURN NULL;
  END IF;
  UPDATE usage_spans SET ended_at = GREATEST(started_at, NEW.at)
  WHERE sandbox_id = NEW.sandbox_id AND ended_at IS NULL
  RETURNING org, kind, ended_at - started_at AS ms INTO ended;
  IF FOUND THEN
    INSERT INTO usage_totals (org, kind, ms) VALUES (ended.org, ended.kind, ended.ms)
    ON CONFLICT (org, kind) DO UPDATE SET ms = usage_totals.ms + excluded.ms;
  END IF;
  IF torpor_usage_kind(NEW.state) IS NOT NULL THEN
    INSERT INTO usage_spans (sandbox_id, seq, org, kind, memory_mb, counts_egress, started_at)
    SELECT NEW.sandbox_id, NEW.seq, NEW.org, torpor_usage_kind(NEW.state), memory_mb, counts_egress, NEW.at
    FROM sandboxes WHERE id = NEW.sandbox_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER usage_follows_events AFTER INSERT ON events
  FOR EACH ROW EXECUTE FUNCTION torpor_project_usage();
-- {end}
