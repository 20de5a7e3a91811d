-- Who asked for a change, and the delivery of events to other programs.

-- The key and the user of the request. Null: the server itself did it (a lifetime, a repair), a request to a preview, or a
-- version of the server that did not record it.
ALTER TABLE operations ADD COLUMN key_id TEXT;
ALTER TABLE operations ADD COLUMN subject TEXT;
-- Only for changes that are not part of an operation.
ALTER TABLE events ADD COLUMN key_id TEXT;
ALTER TABLE events ADD COLUMN subject TEXT;

CREATE TABLE webhooks (
  id TEXT PRIMARY KEY,
  org TEXT NOT NULL,
  url TEXT NOT NULL,
  -- The event types that it gets, as JSON; an empty list is all of them.
  events TEXT NOT NULL,
  -- Up to this position of the ledger, every event that it gets has a row in webhook_deliveries or was delivered.
  position {integer} NOT NULL,
  -- Where a requested replay begins; set back when the server that holds the lease has begun it.
  replay_from {integer},
  -- The server that sends. Only one may, or events could arrive in another order.
  lease_owner TEXT,
  lease_until {integer} NOT NULL,
  created_at {integer} NOT NULL,
  delivered_at {integer},
  -- The last failure and its time; null after a success.
  error TEXT,
  failed_at {integer},
  CHECK ((error IS NULL) = (failed_at IS NULL))
) {strict};
CREATE INDEX webhooks_by_org ON webhooks (org, id);

-- Events that are yet to be delivered, and those that were given up. A delivered event has no row.
CREATE TABLE webhook_deliveries (
  webhook_id TEXT NOT NULL REFERENCES webhooks (id),
  position {integer} NOT NULL,
  sandbox_id TEXT NOT NULL,
  tries {integer} NOT NULL,
  try_at {integer} NOT NULL,
  first_tried_at {integer},
  error TEXT,
  -- When the server gave the event up.
  dead_at {integer},
  PRIMARY KEY (webhook_id, position)
) {strict};
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook_id, sandbox_id, position) WHERE dead_at IS NULL;
