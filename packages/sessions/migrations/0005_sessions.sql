-- Conversations bound to sandboxes, their turns, and what was answered.

CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  -- What the caller calls the thread by.
  key TEXT NOT NULL,
  spec TEXT NOT NULL,
  -- Without a reference: a session outlives its sandbox, and may have come from elsewhere without it.
  sandbox_id TEXT,
  -- The last one it had before, whose files may be left.
  former_id TEXT,
  agent_thread_id TEXT,
  -- Names the next sandbox that is made for it; raised when one is bound or could not be made.
  spawns {integer} NOT NULL,
  -- What that one is made from, and why; present from the decision to the binding.
  plan TEXT,
  -- Whether the program has to be told what was said before.
  history_due {integer} NOT NULL CHECK (history_due IN (0, 1)),
  change TEXT,
  error TEXT,
  created_at {integer} NOT NULL,
  ended_at {integer}
) {strict};

CREATE UNIQUE INDEX sessions_one_per_key ON sessions (org, key) WHERE ended_at IS NULL;
CREATE INDEX sessions_by_org ON sessions (org, id);
CREATE INDEX sessions_bound ON sessions (id) WHERE sandbox_id IS NOT NULL AND ended_at IS NULL;
CREATE INDEX sessions_planned ON sessions (id) WHERE plan IS NOT NULL;

-- Sandboxes that a session has no use for any more, until they are ended.
CREATE TABLE session_leftovers (
  sandbox_id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  session_id TEXT NOT NULL REFERENCES sessions (id)
) {strict};

CREATE TABLE session_turns (
  id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES sessions (id),
  seq {integer} NOT NULL,
  -- What the caller tells one request from another by.
  key TEXT,
  input TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'delivering', 'answering', 'done', 'failed', 'unknown')),
  -- Where it may have arrived; written before it is sent.
  sandbox_id TEXT,
  generation {integer},
  -- The process that answers, and where in its output the answer begins and how far it is stored.
  tag TEXT,
  output_end {integer} NOT NULL,
  exit_code {integer},
  error TEXT,
  tries {integer} NOT NULL,
  try_at {integer} NOT NULL,
  created_at {integer} NOT NULL,
  delivered_at {integer},
  ended_at {integer},
  UNIQUE (session_id, seq),
  CHECK ((state = 'waiting') = (sandbox_id IS NULL) OR ended_at IS NOT NULL),
  CHECK ((ended_at IS NOT NULL) = (state IN ('done', 'failed', 'unknown')))
) {strict};

CREATE UNIQUE INDEX session_turns_by_key ON session_turns (session_id, key) WHERE key IS NOT NULL;
CREATE INDEX session_turns_open ON session_turns (try_at, session_id) WHERE ended_at IS NULL;

-- Pieces of output, by where they stand in everything the process wrote.
CREATE TABLE session_output (
  turn_id TEXT NOT NULL REFERENCES session_turns (id),
  position {integer} NOT NULL,
  channel TEXT NOT NULL CHECK (channel IN ('stdout', 'stderr')),
  text TEXT NOT NULL,
  PRIMARY KEY (turn_id, position)
) {strict};
