/** Reads the ledger: pages, and streams that continue where a reader stopped. */
import type { EventView, SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Queryable, Row } from '../ports/database.ts';

const COLUMNS = `id, sandbox_id, seq, position, at, type, previous_state, state, generation, checkpoint_id,
  operation_id, data`;

export function toEvent(row: Row): EventView {
  return {
    id: row['id'],
    sandboxId: row['sandbox_id'],
    seq: row['seq'],
    position: row['position'],
    at: row['at'],
    type: row['type'],
    previousState: row['previous_state'],
    state: row['state'],
    generation: row['generation'],
    checkpointId: row['checkpoint_id'],
    operationId: row['operation_id'],
    data: JSON.parse(String(row['data'])),
  } as EventView;
}

/** How far a reader has come: `seq` of one sandbox, or `position` in an organisation's whole ledger. */
export type Cursor =
  | { readonly sandboxId: SandboxId; readonly afterSeq: number }
  | { readonly org: string; readonly afterPosition: number };

export async function readEvents(db: Queryable, cursor: Cursor, limit: number): Promise<EventView[]> {
  const rows =
    'sandboxId' in cursor
      ? await db.query(
          `SELECT ${COLUMNS} FROM events WHERE sandbox_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`,
          [cursor.sandboxId, cursor.afterSeq, limit],
        )
      : await db.query(
          `SELECT ${COLUMNS} FROM events WHERE org = $1 AND position > $2 ORDER BY position LIMIT $3`,
          [cursor.org, cursor.afterPosition, limit],
        );
  return rows.map(toEvent);
}

/** How far a reader has come backwards, from the newest event. */
export type BackwardCursor =
  | { readonly sandboxId: SandboxId; readonly beforeSeq: number }
  | { readonly org: string; readonly beforePosition: number };

/** Newest first. */
export async function readEventsBackwards(
  db: Queryable,
  cursor: BackwardCursor,
  limit: number,
): Promise<EventView[]> {
  const rows =
    'sandboxId' in cursor
      ? await db.query(
          `SELECT ${COLUMNS} FROM events WHERE sandbox_id = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3`,
          [cursor.sandboxId, cursor.beforeSeq, limit],
        )
      : await db.query(
          `SELECT ${COLUMNS} FROM events WHERE org = $1 AND position < $2 ORDER BY position DESC LIMIT $3`,
          [cursor.org, cursor.beforePosition, limit],
        );
  return rows.map(toEvent);
}

/** The `seq` or `position` of the newest event; 0 before the first. */
export async function newestPosition(db: Queryable, cursor: Cursor): Promise<number> {
  const [row] =
    'sandboxId' in cursor
      ? await db.query<{ newest: number | null }>(
          'SELECT MAX(seq) AS newest FROM events WHERE sandbox_id = $1',
          [cursor.sandboxId],
        )
      : await db.query<{ newest: number | null }>(
          'SELECT MAX(position) AS newest FROM events WHERE org = $1',
          [cursor.org],
        );
  return row?.newest ?? 0;
}

function advance(cursor: Cursor, event: EventView): Cursor {
  return 'sandboxId' in cursor
    ? { ...cursor, afterSeq: event.seq }
    : { ...cursor, afterPosition: event.position };
}

/** Tells readers that the ledger may have grown; see `NotificationSubscription`. */
export interface LedgerNotifications {
  /** Resolves at the next notification after the call, or when the signal fires. */
  next(signal: AbortSignal): Promise<void>;
}

const PAGE = 200;

/**
 * Every event after the cursor, then every new one as it commits, until the signal fires.
 *
 * The wait begins before the read, so that a commit between the two ends the wait. No event is missed, not even the
 * last one.
 */
async function* followEvents(
  db: Queryable,
  notifications: LedgerNotifications,
  start: Cursor,
  signal: AbortSignal,
): AsyncGenerator<EventView> {
  let cursor = start;
  while (!signal.aborted) {
    const grown = notifications.next(signal);
    const page = await readEvents(db, cursor, PAGE);
    for (const event of page) {
      cursor = advance(cursor, event);
      yield event;
      if (signal.aborted) return;
    }
    if (page.length < PAGE) await grown;
  }
}

/** `followEvents` for a caller of the engine; ends when the engine stops. */
export function follow(ctx: Context, cursor: Cursor, signal: AbortSignal): AsyncGenerator<EventView> {
  return followEvents(ctx.db, ctx.notifications, cursor, AbortSignal.any([signal, ctx.stopping]));
}
