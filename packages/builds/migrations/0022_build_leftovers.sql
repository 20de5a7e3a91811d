-- Sandboxes of earlier attempts that could not be killed, because their node was away. They are killed when it is back.
CREATE TABLE build_leftovers (
  sandbox_id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  job_id TEXT NOT NULL
) {strict};
