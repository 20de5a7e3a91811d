-- How long paused sandboxes are kept, which deletions are announced, and how the disk filled up.

-- Milliseconds; 0 keeps paused sandboxes for good, null leaves it to the server's setting.
ALTER TABLE orgs ADD COLUMN delete_paused_after_ms {integer} CHECK (delete_paused_after_ms >= 0);
-- The same for one sandbox; null leaves it to its organisation.
ALTER TABLE sandboxes ADD COLUMN delete_paused_after_ms {integer} CHECK (delete_paused_after_ms >= 0);
-- Since when the sandbox has been paused without use; null while it is not paused. Kept by the trigger below.
ALTER TABLE sandboxes ADD COLUMN unused_since {integer};
-- When it is deleted. Set together with the event that announces it, cleared when the sandbox is used.
ALTER TABLE sandboxes ADD COLUMN deletes_at {integer};

UPDATE sandboxes SET unused_since = (
  SELECT MAX(e.at) FROM events e
  WHERE e.sandbox_id = sandboxes.id AND e.state = 'paused' AND e.previous_state <> 'paused'
)
WHERE state = 'paused';

CREATE INDEX sandboxes_by_disuse ON sandboxes (id) WHERE unused_since IS NOT NULL;
CREATE INDEX sandboxes_by_deletion ON sandboxes (id) WHERE deletes_at IS NOT NULL;

-- {sqlite}
CREATE TRIGGER retention_follows_events AFTER INSERT ON events
WHEN NEW.state IS NOT NEW.previous_state
BEGIN
  UPDATE sandboxes
  SET unused_since = CASE WHEN NEW.state = 'paused' THEN NEW.at END, deletes_at = NULL
  WHERE id = NEW.sandbox_id;
END;
-- {end}

-- {postgres}
CREATE FUNCTION torpor_follow_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.state IS DISTINCT FROM NEW.previous_state THEN
    UPDATE sandboxes
    SET unused_since = CASE WHEN NEW.state = 'paused' THEN NEW.at END, deletes_at = NULL
    WHERE id = NEW.sandbox_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER retention_follows_events AFTER INSERT ON events
  FOR EACH ROW EXECUTE FUNCTION torpor_follow_use();
-- {end}

-- Each change of the level of the disk. No line of the ledger, because those belong to sandboxes.
CREATE TABLE disk_events (
  id TEXT PRIMARY KEY,
  at {integer} NOT NULL,
  level TEXT NOT NULL CHECK (level IN ('ok', 'low', 'refusing', 'full')),
  previous_level TEXT NOT NULL,
  free_bytes {integer} NOT NULL,
  total_bytes {integer} NOT NULL
) {strict};
CREATE INDEX disk_events_by_time ON disk_events (at, id);
