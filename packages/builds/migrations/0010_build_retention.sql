-- What is let go of builds that are long over, and what comes after a build is ready.

-- Whether the pause after ready has happened or failed, for those who follow the build.
ALTER TABLE build_jobs ADD COLUMN pause_settled {integer} NOT NULL DEFAULT 0;

-- When its files and its log were removed. The row and its version stay.
ALTER TABLE build_jobs ADD COLUMN files_expired_at {integer};
ALTER TABLE build_jobs ADD COLUMN logs_expired_at {integer};

-- The round that removes them looks only at builds that still have something to remove.
CREATE INDEX build_jobs_retained ON build_jobs (org, project_id, number)
  WHERE completed_at IS NOT NULL AND (files_expired_at IS NULL OR logs_expired_at IS NULL);
