-- Tracked jobs: the declared services of sandboxes and the processes started in their background.

-- One row per job. Everything that writes one holds the lock of its sandbox's row, and writes the event that tells
-- of it in the same transaction.
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
  kind TEXT NOT NULL CHECK (kind IN ('service', 'process')),
  -- Of a service, as it was declared.
  name TEXT,
  -- By which the agent knows its process. A fork's processes keep the tags that they had in its source.
  tag TEXT NOT NULL,
  command TEXT NOT NULL,
  cwd TEXT,
  pid {integer},
  state TEXT NOT NULL CHECK (state IN ('running', 'suspended', 'completed', 'lost')),
  -- The start of the sandbox in which its present process began.
  generation {integer} NOT NULL,
  restarts {integer} NOT NULL,
  -- The job whose process this one's is a copy of. That job may be forgotten by now.
  forked_from TEXT,
  created_at {integer} NOT NULL,
  started_at {integer} NOT NULL,
  ended_at {integer},
  exit_code {integer},
  signal TEXT,
  lost_reason TEXT,
  UNIQUE (sandbox_id, tag),
  CHECK ((kind = 'service') = (name IS NOT NULL)),
  CHECK ((state IN ('completed', 'lost')) = (ended_at IS NOT NULL)),
  CHECK ((state = 'completed') = (exit_code IS NOT NULL)),
  CHECK (signal IS NULL OR state = 'completed'),
  CHECK ((state = 'lost') = (lost_reason IS NOT NULL))
) {strict};
CREATE INDEX jobs_by_sandbox ON jobs (sandbox_id, created_at, id);
CREATE INDEX jobs_live ON jobs (sandbox_id) WHERE state IN ('running', 'suspended');

-- Which jobs run in the memory of a checkpoint: they come back with it. The rows go when the checkpoint is deleted.
CREATE TABLE checkpoint_jobs (
  checkpoint_id TEXT NOT NULL REFERENCES checkpoints (id),
  tag TEXT NOT NULL,
  job_id TEXT NOT NULL REFERENCES jobs (id),
  PRIMARY KEY (checkpoint_id, tag)
) {strict};
CREATE INDEX checkpoint_jobs_by_job ON checkpoint_jobs (job_id);

-- A sandbox's services carry the ids of their jobs.
-- {sqlite}
UPDATE sandboxes SET config = json_set(config, '$.services', (
  SELECT json_group_array(json_set(s.value, '$.jobId', 'job_' || lower(hex(randomblob(10)))))
  FROM json_each(sandboxes.config, '$.services') s))
WHERE json_array_length(config, '$.services') > 0;

CREATE TABLE declared_services AS
SELECT s.id AS sandbox_id, one.value ->> '$.jobId' AS id, one.value ->> '$.name' AS name,
  one.value ->> '$.command' AS command, one.value ->> '$.cwd' AS cwd
FROM sandboxes s, json_each(s.config, '$.services') one;
-- {end}
-- {postgres}
UPDATE sandboxes SET config = jsonb_set(config::jsonb, '{services}', (
  SELECT jsonb_agg(one || jsonb_build_object('jobId',
    'job_' || substr(md5(sandboxes.id || (one ->> 'name') || random()::text), 1, 20)) ORDER BY n)
  FROM jsonb_array_elements(sandboxes.config::jsonb -> 'services') WITH ORDINALITY AS t (one, n)))::text
WHERE jsonb_array_length(config::jsonb -> 'services') > 0;

CREATE TABLE declared_services AS
SELECT s.id AS sandbox_id, one ->> 'jobId' AS id, one ->> 'name' AS name,
  one ->> 'command' AS command, one ->> 'cwd' AS cwd
FROM sandboxes s, jsonb_array_elements(s.config::jsonb -> 'services') one;
-- {end}

-- What is known of a job from before: a sandbox that runs has its processes, one that sleeps with its memory too.
CREATE TABLE former_state AS
SELECT s.id AS sandbox_id, s.org, s.generation, s.created_at, s.observed_at,
  CASE
    WHEN s.state IN ('running', 'pausing', 'killing') THEN 'running'
    WHEN s.state IN ('paused', 'resuming') AND s.lost NOT LIKE '%processes%' THEN 'suspended'
    ELSE 'lost'
  END AS state,
  CASE
    WHEN s.state IN ('paused', 'resuming') THEN 'files_only_pause'
    WHEN s.state = 'killed' THEN 'sandbox_killed'
    ELSE 'sandbox_lost'
  END AS reason
FROM sandboxes s WHERE s.generation > 0 AND s.state <> 'creating';

INSERT INTO jobs (id, org, sandbox_id, kind, name, tag, command, cwd, state, generation, restarts, created_at,
  started_at, ended_at, lost_reason)
SELECT d.id, f.org, f.sandbox_id, 'service', d.name, 'service:' || d.name, d.command, d.cwd, f.state, f.generation, 0,
  f.created_at, f.created_at,
  CASE WHEN f.state = 'lost' THEN f.observed_at END, CASE WHEN f.state = 'lost' THEN f.reason END
FROM declared_services d JOIN former_state f ON f.sandbox_id = d.sandbox_id;

INSERT INTO jobs (id, org, sandbox_id, kind, tag, command, cwd, pid, state, generation, restarts, created_at,
  started_at, ended_at, exit_code, signal, lost_reason)
SELECT 'job_' || substr(b.id, 5), f.org, b.sandbox_id, 'process', b.id, b.command, b.cwd, b.pid,
  CASE
    WHEN b.reason LIKE 'it ended with exit code %' OR b.reason LIKE 'it was ended by SIG%' THEN 'completed'
    WHEN b.ended IS NOT NULL THEN 'lost'
    ELSE f.state
  END,
  b.generation, 0, b.started_at, b.started_at,
  CASE WHEN b.ended IS NOT NULL OR f.state = 'lost' THEN f.observed_at END,
  CASE
    WHEN b.reason LIKE 'it ended with exit code %' THEN CAST(substr(b.reason, 25) AS {integer})
    WHEN b.reason LIKE 'it was ended by SIGTERM' THEN 143
    WHEN b.reason LIKE 'it was ended by SIGKILL' THEN 137
    WHEN b.reason LIKE 'it was ended by SIG%' THEN 128
  END,
  CASE WHEN b.reason LIKE 'it was ended by SIG%' THEN substr(b.reason, 17) END,
  CASE
    WHEN b.reason LIKE 'it ended with exit code %' OR b.reason LIKE 'it was ended by SIG%' THEN NULL
    WHEN b.ended = 'lost' THEN 'files_only_pause'
    WHEN b.ended = 'exited' THEN 'not_found'
    WHEN f.state = 'lost' THEN f.reason
  END
FROM background_processes b JOIN former_state f ON f.sandbox_id = b.sandbox_id;

INSERT INTO checkpoint_jobs (checkpoint_id, tag, job_id)
SELECT s.checkpoint_id, j.tag, j.id FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
WHERE j.state = 'suspended' AND s.checkpoint_id IS NOT NULL;

DROP TABLE former_state;
DROP TABLE declared_services;
-- Its rows are jobs now: two tables that tell of one process could disagree.
DROP TABLE background_processes;

-- Several events of one sandbox may be written by one statement: positions follow each other without a gap and end
-- at the head of the ledger, and the sandbox is what the last of them makes of it.
-- {sqlite}
DROP TRIGGER events_are_projected;
CREATE TRIGGER events_are_projected AFTER INSERT ON events
BEGIN
  SELECT RAISE(ABORT, 'event out of sequence')
  WHERE NEW.seq IS NOT (SELECT seq + 1 FROM sandboxes WHERE id = NEW.sandbox_id)
     OR NEW.position > (SELECT position FROM ledger_head)
     OR (NEW.position > 1 AND NOT EXISTS (SELECT 1 FROM events WHERE position = NEW.position - 1));
  UPDATE sandboxes
  SET state = NEW.state, seq = NEW.seq, generation = NEW.generation,
      base_id = NEW.base_id, checkpoint_id = NEW.checkpoint_id
  WHERE id = NEW.sandbox_id;
END;
-- {end}

-- {postgres}
DROP TRIGGER events_are_projected ON events;
DROP FUNCTION torpor_project_event();
CREATE FUNCTION torpor_project_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
      SELECT 1 FROM (
        SELECT sandbox_id, MIN(seq) AS first, MAX(seq) AS last, COUNT(*) AS n FROM added GROUP BY sandbox_id) a
      LEFT JOIN sandboxes s ON s.id = a.sandbox_id
      WHERE a.first IS DISTINCT FROM s.seq + 1 OR a.last - a.first + 1 <> a.n)
    OR EXISTS (
      SELECT 1 FROM (SELECT MIN(position) AS first, MAX(position) AS last, COUNT(*) AS n FROM added) p
      WHERE p.n > 0 AND (p.last - p.first + 1 <> p.n
        OR p.last IS DISTINCT FROM (SELECT position FROM ledger_head))) THEN
    RAISE EXCEPTION 'event out of sequence' USING ERRCODE = 'check_violation';
  END IF;
  UPDATE sandboxes
  SET state = e.state, seq = e.seq, generation = e.generation, base_id = e.base_id, checkpoint_id = e.checkpoint_id
  FROM added e
  WHERE sandboxes.id = e.sandbox_id AND e.seq = (SELECT MAX(seq) FROM added WHERE sandbox_id = e.sandbox_id);
  RETURN NULL;
END $$;
CREATE TRIGGER events_are_projected AFTER INSERT ON events
  REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION torpor_project_events();
-- {end}
