-- One-time links to private previews that were used. A link may be used at another node than the one that made it.
CREATE TABLE used_preview_links (
  nonce TEXT PRIMARY KEY,
  expires_at {integer} NOT NULL
) {strict};
