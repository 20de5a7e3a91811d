/** Events that wait for their delivery to a webhook, and those that were given up. */
import type { Queryable, Row, SqlValue, Transaction } from '@torpor/engine';
import type { DeadLetter, EventId, EventType, EventView, SandboxId, WebhookId } from '@torpor/protocol';

export interface Delivery {
  readonly webhookId: WebhookId;
  readonly position: number;
  readonly sandboxId: SandboxId;
  readonly tries: number;
  /** Null before the first attempt. */
  readonly firstTriedAt: number | null;
}

/** How many rows one statement writes: SQLite limits the number of parameters. */
const ROWS_AT_ONCE = 200;

export async function insertDeliveries(
  tx: Transaction,
  webhookId: WebhookId,
  events: readonly EventView[],
  now: number,
): Promise<void> {
  for (let at = 0; at < events.length; at += ROWS_AT_ONCE) {
    const params: SqlValue[] = [webhookId, now];
    const rows = events.slice(at, at + ROWS_AT_ONCE).map(({ position, sandboxId }) => {
      params.push(position, sandboxId);
      return `($1, $${params.length - 1}, $${params.length}, 0, $2)`;
    });
    await tx.query(
      `INSERT INTO webhook_deliveries (webhook_id, position, sandbox_id, tries, try_at) VALUES ${rows.join(', ')}`,
      params,
    );
  }
}

/** `blocked` are the events that wait behind an event of their sandbox that the receiver has not accepted. */
export async function countWaiting(
  db: Queryable,
  webhookId: WebhookId,
): Promise<{ readonly all: number; readonly blocked: number }> {
  const [row] = await db.query<{ everything: number; blocked: number }>(
    `SELECT COUNT(*) AS everything, COUNT(CASE WHEN sandbox_id IN (
         SELECT sandbox_id FROM webhook_deliveries WHERE webhook_id = $1 AND dead_at IS NULL AND tries > 0
       ) THEN 1 END) AS blocked
     FROM webhook_deliveries WHERE webhook_id = $1 AND dead_at IS NULL`,
    [webhookId],
  );
  return { all: row?.everything ?? 0, blocked: row?.blocked ?? 0 };
}

/**
 * The first waiting event of each sandbox, when it is due. Later events of the sandbox wait behind it. Those that waited
 * longest come first, so that sandboxes whose events fail do not keep out the others.
 */
export async function listDue(
  db: Queryable,
  webhookId: WebhookId,
  now: number,
  limit: number,
): Promise<Delivery[]> {
  const rows = await db.query(
    `SELECT position, sandbox_id, tries, first_tried_at FROM webhook_deliveries d
     WHERE webhook_id = $1 AND dead_at IS NULL AND try_at <= $2
       AND NOT EXISTS (
         SELECT 1 FROM webhook_deliveries earlier
         WHERE earlier.webhook_id = $1 AND earlier.sandbox_id = d.sandbox_id AND earlier.dead_at IS NULL
           AND earlier.position < d.position)
     ORDER BY try_at, position LIMIT $3`,
    [webhookId, now, limit],
  );
  return rows.map((row) => ({
    webhookId,
    position: Number(row['position']),
    sandboxId: row['sandbox_id'] as SandboxId,
    tries: Number(row['tries']),
    firstTriedAt: row['first_tried_at'] as number | null,
  }));
}

export async function deleteDelivery(tx: Transaction, { webhookId, position }: Delivery): Promise<void> {
  await tx.query('DELETE FROM webhook_deliveries WHERE webhook_id = $1 AND position = $2', [
    webhookId,
    position,
  ]);
}

export interface Failure {
  readonly now: number;
  readonly message: string;
  /** When it is sent again; null gives it up. */
  readonly tryAt: number | null;
}

export async function failDelivery(
  tx: Transaction,
  { webhookId, position }: Delivery,
  { now, message, tryAt }: Failure,
): Promise<void> {
  await tx.query(
    `UPDATE webhook_deliveries SET tries = tries + 1, try_at = $3, error = $4, dead_at = $5,
       first_tried_at = COALESCE(first_tried_at, $6)
     WHERE webhook_id = $1 AND position = $2`,
    [webhookId, position, tryAt ?? now, message, tryAt === null ? now : null, now],
  );
}

/** Oldest first. */
export async function listDeadLetters(
  db: Queryable,
  webhookId: WebhookId,
  afterPosition: number,
  limit: number,
): Promise<DeadLetter[]> {
  const rows = await db.query(
    `SELECT d.position, d.sandbox_id, d.tries, d.first_tried_at, d.dead_at, d.error, e.id, e.type
     FROM webhook_deliveries d JOIN events e ON e.position = d.position
     WHERE d.webhook_id = $1 AND d.dead_at IS NOT NULL AND d.position > $2
     ORDER BY d.position LIMIT $3`,
    [webhookId, afterPosition, limit],
  );
  return rows.map(toDeadLetter);
}

function toDeadLetter(row: Row): DeadLetter {
  return {
    position: Number(row['position']),
    sandboxId: row['sandbox_id'] as SandboxId,
    eventId: row['id'] as EventId,
    type: row['type'] as EventType,
    tries: Number(row['tries']),
    firstTriedAt: Number(row['first_tried_at']),
    deadAt: Number(row['dead_at']),
    error: String(row['error']),
  };
}
