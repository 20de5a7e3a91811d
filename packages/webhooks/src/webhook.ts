/** Webhooks as the database has them. */
import type { Queryable, Row, Transaction } from '@torpor/engine';
import {
  type EventFilter,
  TorporError,
  type WebhookId,
  type WebhookView,
  webhookViewSchema,
} from '@torpor/protocol';

export interface Webhook {
  readonly id: WebhookId;
  readonly org: string;
  readonly url: string;
  readonly events: readonly EventFilter[];
  /** Up to here, events have rows or were delivered. */
  readonly position: number;
  readonly replayFrom: number | null;
  readonly createdAt: number;
}

const COLUMNS = `id, org, url, events, position, replay_from, created_at, delivered_at, error, failed_at`;
const COUNTS = `
  (SELECT COUNT(*) FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.dead_at IS NULL) AS waiting,
  (SELECT COUNT(*) FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.dead_at IS NOT NULL) AS dead`;

function toWebhook(row: Row): Webhook {
  return {
    id: row['id'] as WebhookId,
    org: String(row['org']),
    url: String(row['url']),
    events: webhookViewSchema.shape.events.parse(JSON.parse(String(row['events']))),
    position: Number(row['position']),
    replayFrom: row['replay_from'] as number | null,
    createdAt: Number(row['created_at']),
  };
}

function toView(row: Row): WebhookView {
  const { id, url, events, position, replayFrom, createdAt } = toWebhook(row);
  const error = row['error'] as string | null;
  return {
    id,
    url,
    events: [...events],
    // A requested replay counts from the request on.
    position: replayFrom === null ? position : Math.min(position, replayFrom - 1),
    waiting: Number(row['waiting']),
    dead: Number(row['dead']),
    createdAt,
    deliveredAt: row['delivered_at'] as number | null,
    error: error === null ? null : { message: error, at: Number(row['failed_at']) },
  };
}

export async function insertWebhook(tx: Transaction, webhook: Webhook): Promise<void> {
  await tx.query(
    `INSERT INTO webhooks (id, org, url, events, position, lease_until, created_at)
     VALUES ($1, $2, $3, $4, $5, 0, $6)`,
    [
      webhook.id,
      webhook.org,
      webhook.url,
      JSON.stringify(webhook.events),
      webhook.position,
      webhook.createdAt,
    ],
  );
}

export async function findWebhook(db: Queryable, id: WebhookId): Promise<Webhook | undefined> {
  const [row] = await db.query(`SELECT ${COLUMNS} FROM webhooks WHERE id = $1`, [id]);
  return row === undefined ? undefined : toWebhook(row);
}

export async function getWebhook(db: Queryable, org: string, id: WebhookId): Promise<Webhook> {
  const webhook = await findWebhook(db, id);
  if (webhook === undefined || webhook.org !== org) throw noSuchWebhook(id);
  return webhook;
}

export async function viewWebhook(db: Queryable, org: string, id: WebhookId): Promise<WebhookView> {
  const [row] = await db.query(`SELECT ${COLUMNS}, ${COUNTS} FROM webhooks w WHERE id = $1 AND org = $2`, [
    id,
    org,
  ]);
  if (row === undefined) throw noSuchWebhook(id);
  return toView(row);
}

export async function listWebhooks(
  db: Queryable,
  org: string,
  after: string,
  limit: number,
): Promise<WebhookView[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS}, ${COUNTS} FROM webhooks w WHERE org = $1 AND id > $2 ORDER BY id LIMIT $3`,
    [org, after, limit],
  );
  return rows.map(toView);
}

export async function allWebhookIds(db: Queryable): Promise<WebhookId[]> {
  return (await db.query<{ id: WebhookId }>('SELECT id FROM webhooks ORDER BY id')).map(({ id }) => id);
}

export async function countWebhooks(db: Queryable, org: string): Promise<number> {
  const [row] = await db.query<{ n: number }>('SELECT COUNT(*) AS n FROM webhooks WHERE org = $1', [org]);
  return row?.n ?? 0;
}

export async function deleteWebhook(tx: Transaction, id: WebhookId): Promise<void> {
  await tx.query('DELETE FROM webhook_deliveries WHERE webhook_id = $1', [id]);
  await tx.query('DELETE FROM webhooks WHERE id = $1', [id]);
}

/** Takes or renews the lease. Undefined: another server holds it, or the webhook does not exist. */
export async function takeLease(
  tx: Transaction,
  id: WebhookId,
  serverId: string,
  now: number,
  until: number,
): Promise<number | undefined> {
  const [row] = await tx.query<{ lease_until: number }>(
    `UPDATE webhooks SET lease_owner = $2, lease_until = $4
     WHERE id = $1 AND (lease_owner = $2 OR lease_until <= $3) RETURNING lease_until`,
    [id, serverId, now, until],
  );
  return row?.lease_until;
}

export async function releaseLease(tx: Transaction, id: WebhookId, serverId: string): Promise<void> {
  await tx.query('UPDATE webhooks SET lease_until = 0 WHERE id = $1 AND lease_owner = $2', [id, serverId]);
}

/** For a server that is alone with its database: the holders of all leases are dead. */
export async function releaseAllLeases(tx: Transaction): Promise<void> {
  await tx.query('UPDATE webhooks SET lease_until = 0');
}

/**
 * Moves the position of a webhook. False when this server lost the lease, or a replay was requested since `webhook` was
 * read: then its rows must not be written.
 */
export async function movePosition(
  tx: Transaction,
  { id, position }: Webhook,
  serverId: string,
  to: number,
): Promise<boolean> {
  const rows = await tx.query(
    `UPDATE webhooks SET position = $4
     WHERE id = $1 AND position = $2 AND lease_owner = $3 AND replay_from IS NULL RETURNING id`,
    [id, position, serverId, to],
  );
  return rows.length > 0;
}

/** The earliest of several requested replays counts. */
export async function requestReplay(tx: Transaction, id: WebhookId, from: number): Promise<void> {
  await tx.query(
    `UPDATE webhooks SET replay_from = CASE WHEN replay_from < $2 THEN replay_from ELSE $2 END WHERE id = $1`,
    [id, from],
  );
}

/**
 * Sets the position back to before the replay and removes the rows after it, which are planned again. A replay never moves
 * the position forward: that would skip events. The caller holds the lease and sends nothing at the moment, so that no event
 * after the position arrives before the replayed ones.
 */
export async function beginReplay(tx: Transaction, id: WebhookId, serverId: string): Promise<void> {
  const [row] = await tx.query<{ position: number }>(
    `UPDATE webhooks SET position = CASE WHEN replay_from - 1 < position THEN replay_from - 1 ELSE position END,
       replay_from = NULL
     WHERE id = $1 AND lease_owner = $2 AND replay_from IS NOT NULL RETURNING position`,
    [id, serverId],
  );
  if (row === undefined) return;
  await tx.query('DELETE FROM webhook_deliveries WHERE webhook_id = $1 AND position > $2', [
    id,
    row.position,
  ]);
}

export async function recordSuccess(tx: Transaction, id: WebhookId, now: number): Promise<void> {
  await tx.query('UPDATE webhooks SET delivered_at = $2, error = NULL, failed_at = NULL WHERE id = $1', [
    id,
    now,
  ]);
}

export async function recordFailure(
  tx: Transaction,
  id: WebhookId,
  now: number,
  message: string,
): Promise<void> {
  await tx.query('UPDATE webhooks SET error = $3, failed_at = $2 WHERE id = $1', [id, now, message]);
}

function noSuchWebhook(id: WebhookId): TorporError {
  return new TorporError('not_found', `There is no webhook ${id}.`);
}
