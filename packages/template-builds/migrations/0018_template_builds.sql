-- Template builds that clients start step by step, and what they said.
CREATE TABLE template_builds (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  -- The name of the template, without a tag.
  template TEXT NOT NULL,
  -- The names that the result gets, with their tags, as JSON.
  names TEXT NOT NULL,
  -- waiting: created, and not started by its client yet.
  status TEXT NOT NULL CHECK (status IN ('waiting', 'building', 'ready', 'error')),
  -- The server that builds.
  owner TEXT,
  -- The result. It may have been deleted since.
  checkpoint_id TEXT,
  -- Why the build failed, and in which step: base, a number, or finalize.
  reason TEXT,
  step TEXT,
  last_line {integer} NOT NULL,
  created_at {integer} NOT NULL,
  updated_at {integer} NOT NULL,
  finished_at {integer},
  CHECK ((status = 'building') = (owner IS NOT NULL)),
  CHECK ((status = 'ready') = (checkpoint_id IS NOT NULL)),
  CHECK ((status = 'error') = (reason IS NOT NULL)),
  CHECK ((status IN ('ready', 'error')) = (finished_at IS NOT NULL))
) {strict};
CREATE INDEX template_builds_by_template ON template_builds (org, template, created_at);
CREATE INDEX template_builds_by_checkpoint ON template_builds (checkpoint_id);
CREATE INDEX template_builds_open ON template_builds (owner) WHERE finished_at IS NULL;

CREATE TABLE template_build_logs (
  build_id TEXT NOT NULL REFERENCES template_builds (id),
  id {integer} NOT NULL,
  at {integer} NOT NULL,
  level TEXT NOT NULL,
  step TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (build_id, id)
) {strict};
