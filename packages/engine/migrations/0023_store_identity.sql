-- Each store has one object that tells it from every other store at the same address: another service, or a bucket that was
-- made anew. Several nodes may begin to write one at the same time; one of them is recorded.
CREATE UNIQUE INDEX stored_objects_identity ON stored_objects (store) WHERE kind = 'identity' AND state = 'stored';
