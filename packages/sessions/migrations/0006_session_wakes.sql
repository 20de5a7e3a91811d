-- What became of the sandboxes of a session, and which files a turn saw.

-- Where the ledger of its sandbox stood when a turn was sent there and when the turn ended. A checkpoint holds what
-- the turn wrote only when it was sealed after that end, or when the sandbox never ran after the seal.
ALTER TABLE session_turns ADD COLUMN claimed_seq {integer};
ALTER TABLE session_turns ADD COLUMN ended_seq {integer};

-- Turns from before this migration: the start that they were sent to is the earliest they can have been sent. When
-- they ended is not known, so no snapshot counts as later.
UPDATE session_turns SET claimed_seq = (
  SELECT MAX(e.seq) FROM events e
  WHERE e.sandbox_id = session_turns.sandbox_id AND e.generation = session_turns.generation
    AND e.type IN ('sandbox.started', 'sandbox.resumed')
) WHERE sandbox_id IS NOT NULL;

-- Whether the last sandbox that was made from the spec failed for good: then another spec may take its place.
ALTER TABLE sessions ADD COLUMN spec_failed {integer} NOT NULL DEFAULT 0 CHECK (spec_failed IN (0, 1));

CREATE TABLE session_wakes (
  session_id TEXT NOT NULL REFERENCES sessions (id),
  ordinal {integer} NOT NULL,
  at {integer} NOT NULL,
  did TEXT NOT NULL CHECK (did IN ('used', 'resumed', 'spawned', 'replaced', 'rebound', 'healed', 'failed')),
  why TEXT,
  message TEXT,
  former_sandbox_id TEXT,
  sandbox_id TEXT,
  checkpoint_id TEXT,
  source_kind TEXT CHECK (source_kind IN ('memory', 'files', 'template')),
  lost TEXT NOT NULL,
  lost_since {integer},
  thread_kept {integer} NOT NULL CHECK (thread_kept IN (0, 1)),
  error_code TEXT,
  error_message TEXT,
  -- What tells one failure from another, without the ids and numbers in its message.
  cause TEXT,
  -- How often it failed for this cause, when last, and when the session recovered.
  times {integer} NOT NULL,
  last_at {integer} NOT NULL,
  recovered_at {integer},
  PRIMARY KEY (session_id, ordinal),
  CHECK ((did = 'failed') = (cause IS NOT NULL))
) {strict};
