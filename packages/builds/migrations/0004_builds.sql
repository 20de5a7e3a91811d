-- Builds: jobs, what happened to them, what they said and what they made.

-- Projects appear at first use. Their rows are what versions are counted under.
CREATE TABLE build_projects (
  org TEXT NOT NULL,
  id TEXT NOT NULL,
  created_at {integer} NOT NULL,
  PRIMARY KEY (org, id)
) {strict};

-- One row: whoever lets builds in or out locks it first, so that caps are never exceeded by two at once.
CREATE TABLE build_gate (
  id {integer} PRIMARY KEY CHECK (id = 1),
  -- Grows with every job: the order of those who wait.
  number {integer} NOT NULL
) {strict};
INSERT INTO build_gate (id, number) VALUES (1, 0);

CREATE TABLE build_jobs (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  user_id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  plan TEXT NOT NULL,
  runner TEXT NOT NULL,
  goal TEXT NOT NULL,
  -- Where the application listens, when its maker said so.
  wanted_port {integer},
  -- The build that this one goes on from or does again.
  previous_id TEXT REFERENCES build_jobs (id),
  previous_kind TEXT CHECK (previous_kind IN ('iteration', 'rebuild')),
  status TEXT NOT NULL CHECK (status IN
    ('queued', 'starting', 'scaffold', 'code', 'deps', 'checks', 'ready', 'failed', 'scheduled')),
  status_message TEXT NOT NULL,
  -- The numbers of its last event and of its last line of log.
  last_event {integer} NOT NULL,
  last_line {integer} NOT NULL,
  -- Lower goes first; then the order in which they came.
  priority {integer} NOT NULL,
  number {integer} NOT NULL,
  -- When it got a slot of its user and its project, and a place in the queue.
  admitted_at {integer},
  -- A scheduled one waits until then.
  not_before {integer},
  sandbox_id TEXT,
  port {integer},
  preview_url TEXT,
  build_version TEXT,
  workspace_path TEXT,
  -- A projection: the truth about a sandbox is its own row.
  sandbox_paused {integer} NOT NULL DEFAULT 0,
  error_message TEXT,
  debug_id TEXT,
  -- Whether the sandboxes of a build that failed have been looked for and ended.
  tidied {integer} NOT NULL DEFAULT 0,
  iterations_used {integer} NOT NULL DEFAULT 0,
  iterations_granted {integer} NOT NULL DEFAULT 0,
  viewed_at {integer},
  created_at {integer} NOT NULL,
  updated_at {integer} NOT NULL,
  started_at {integer},
  completed_at {integer},
  FOREIGN KEY (org, project_id) REFERENCES build_projects (org, id),
  CHECK ((previous_id IS NULL) = (previous_kind IS NULL)),
  CHECK ((status IN ('ready', 'failed')) = (completed_at IS NOT NULL)),
  CHECK (status <> 'failed' OR debug_id IS NOT NULL)
) {strict};

-- What two builds of one project can never share.
CREATE UNIQUE INDEX build_jobs_version ON build_jobs (org, project_id, build_version)
  WHERE status = 'ready' AND build_version IS NOT NULL;
CREATE INDEX build_jobs_user ON build_jobs (org, user_id, number);
CREATE INDEX build_jobs_project ON build_jobs (org, project_id, number);
CREATE INDEX build_jobs_open ON build_jobs (status, priority, number) WHERE completed_at IS NULL;
CREATE INDEX build_jobs_untidy ON build_jobs (id) WHERE status = 'failed' AND tidied = 0;

CREATE TABLE build_events (
  job_id TEXT NOT NULL REFERENCES build_jobs (id),
  seq {integer} NOT NULL,
  type TEXT NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (job_id, seq)
) {strict};

CREATE TABLE build_logs (
  job_id TEXT NOT NULL REFERENCES build_jobs (id),
  id {integer} NOT NULL,
  at {integer} NOT NULL,
  source TEXT NOT NULL,
  phase TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job_id, id)
) {strict};

-- What a runner made, as it made it: for a second attempt, a rebuild, and for looking at what failed.
CREATE TABLE build_files (
  job_id TEXT NOT NULL REFERENCES build_jobs (id),
  path TEXT NOT NULL,
  encoding TEXT NOT NULL CHECK (encoding IN ('utf8', 'base64')),
  content TEXT NOT NULL,
  executable {integer} NOT NULL,
  PRIMARY KEY (job_id, path)
) {strict};

CREATE TABLE build_usage (
  org TEXT NOT NULL,
  user_id TEXT NOT NULL,
  -- As 2026-01-31, in UTC.
  day TEXT NOT NULL,
  jobs {integer} NOT NULL,
  PRIMARY KEY (org, user_id, day)
) {strict};

-- How long builds of a plan take, as a moving average.
CREATE TABLE build_durations (
  plan TEXT PRIMARY KEY,
  seconds {real} NOT NULL
) {strict};
