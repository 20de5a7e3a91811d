-- Secrets that all nodes share, encrypted with a key that is derived from the cluster secret.
CREATE TABLE shared_secrets (
  name TEXT PRIMARY KEY,
  encrypted TEXT NOT NULL,
  created_at {integer} NOT NULL
) {strict};

-- One-time links to the page, by the hash of their code. A link may be used at another node than the one that made it.
CREATE TABLE page_links (
  code_hash TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  key_id TEXT NOT NULL,
  read_only {integer} NOT NULL,
  expires_at {integer} NOT NULL
) {strict};
