-- Durable jobs.

CREATE TABLE queue_jobs (
  id TEXT PRIMARY KEY,
  queue TEXT NOT NULL,
  dedupe_key TEXT,
  -- Lower goes first. Meant for a handful of values: a claim looks at each that is in use.
  priority {integer} NOT NULL,
  run_at {integer} NOT NULL,
  payload TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'leased', 'done', 'failed')),
  attempts {integer} NOT NULL,
  max_attempts {integer} NOT NULL CHECK (max_attempts > 0),
  lease_owner TEXT,
  lease_until {integer},
  -- Grows with every claim: whoever carries an older one no longer holds the job.
  token {integer} NOT NULL,
  last_error TEXT,
  created_at {integer} NOT NULL,
  ended_at {integer},
  -- From when on it may be claimed: when its time has come, or when its holder has let the lease run out.
  claimable_at {integer} GENERATED ALWAYS AS (
    CASE state WHEN 'waiting' THEN run_at WHEN 'leased' THEN lease_until END
  ) STORED,
  CHECK ((state = 'leased') = (lease_owner IS NOT NULL)),
  CHECK ((state = 'leased') = (lease_until IS NOT NULL)),
  CHECK ((state IN ('done', 'failed')) = (ended_at IS NOT NULL))
) {strict};

CREATE UNIQUE INDEX queue_jobs_dedupe ON queue_jobs (queue, dedupe_key)
  WHERE dedupe_key IS NOT NULL AND ended_at IS NULL;
-- The first entry of a priority is the next to claim at it, however many lie behind.
CREATE INDEX queue_jobs_claim ON queue_jobs (queue, priority, claimable_at, id) WHERE ended_at IS NULL;
CREATE INDEX queue_jobs_ended ON queue_jobs (ended_at) WHERE ended_at IS NOT NULL;
