-- What the HTTP face remembers: keys, answers to requests that are not operations, processes it left running.

-- Only the hash of a key is kept, so that a stolen database opens nothing.
CREATE TABLE api_keys (
  hash TEXT PRIMARY KEY,
  -- What people call it by: the beginning of the hash.
  id TEXT NOT NULL UNIQUE,
  org TEXT NOT NULL,
  -- Whose key it is; null for a service key, which acts for anybody of its organisation.
  subject TEXT,
  name TEXT NOT NULL,
  created_at {integer} NOT NULL,
  expires_at {integer},
  revoked_at {integer}
) {strict};

CREATE INDEX api_keys_org ON api_keys (org, id);

-- Operations have their idempotency keys with their rows; these are the requests beside them.
CREATE TABLE request_replays (
  org TEXT NOT NULL,
  route TEXT NOT NULL,
  key TEXT NOT NULL,
  body_hash TEXT NOT NULL,
  -- Whether the answer is an error.
  failed {integer} NOT NULL,
  answer TEXT NOT NULL,
  expires_at {integer} NOT NULL,
  PRIMARY KEY (org, route, key)
) {strict};

CREATE INDEX request_replays_expiry ON request_replays (expires_at);

-- Kept so that a process in the background has a status while its sandbox sleeps, and an end when it is gone.
CREATE TABLE background_processes (
  id TEXT PRIMARY KEY,
  sandbox_id TEXT NOT NULL,
  -- The start of the sandbox that it was started in.
  generation {integer} NOT NULL,
  pid {integer} NOT NULL,
  command TEXT NOT NULL,
  cwd TEXT,
  started_at {integer} NOT NULL,
  -- Null while nothing is known of its end.
  ended TEXT CHECK (ended IN ('exited', 'lost')),
  reason TEXT,
  CHECK ((ended IS NULL) = (reason IS NULL))
) {strict};

CREATE INDEX background_processes_sandbox ON background_processes (sandbox_id, started_at, id);
