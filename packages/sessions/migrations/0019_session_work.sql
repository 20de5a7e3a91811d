-- The server that delivers the turns of the session now. It counts only while that server has a lease in `servers`.
ALTER TABLE sessions ADD COLUMN worked_by TEXT;
