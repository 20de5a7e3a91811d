/**
 * Follows the ledger for the log and the metrics (R115): every event that is written while this server runs becomes a
 * log line and is counted. Events of other servers' operations are left out, so that several servers on one database
 * do not count twice. Events without an operation are counted by each server.
 */
import { setImmediate } from 'node:timers/promises';
import type { Database, Queryable } from '@torpor/engine';
import type { EventType } from '@torpor/protocol';
import { z } from 'zod';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';

interface LedgerEvent {
  readonly position: number;
  readonly sandbox_id: string;
  readonly org: string;
  readonly type: EventType;
  readonly state: string;
  readonly previous_state: string | null;
  readonly generation: number;
  readonly checkpoint_id: string | null;
  readonly operation_id: string | null;
  readonly owner: string | null;
  readonly data: string;
  readonly [column: string]: string | number | null;
}

const PAGE = 500;

async function headOf(db: Queryable): Promise<number> {
  const [row] = await db.query<{ position: number }>('SELECT position FROM ledger_head WHERE one = 1');
  return row?.position ?? 0;
}

async function eventsAfter(db: Queryable, position: number): Promise<LedgerEvent[]> {
  return db.query<LedgerEvent>(
    `SELECT e.position, e.sandbox_id, e.org, e.type, e.state, e.previous_state, e.generation, e.checkpoint_id,
       e.operation_id, e.data, o.owner
     FROM events e LEFT JOIN operations o ON o.id = e.operation_id
     WHERE e.position > $1 ORDER BY e.position LIMIT $2`,
    [position, PAGE],
  );
}

export interface LedgerWatchContext {
  readonly db: Database;
  readonly serverId: string;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Returns a function that stops the watch after the current read. */
export async function watchLedger(ctx: LedgerWatchContext): Promise<() => Promise<void>> {
  const { db, log } = ctx;
  let position = await headOf(db);
  let reading: Promise<void> | undefined;
  let again = false;
  let stopped = false;
  const readOn = async () => {
    do {
      again = false;
      for (
        let page = await eventsAfter(db, position);
        page.length > 0;
        page = await eventsAfter(db, position)
      ) {
        for (const line of page) recordEvent(ctx, line);
        position = page.at(-1)?.position ?? position;
      }
    } while (again && !stopped);
  };
  const look = () => {
    again = true;
    if (stopped) return;
    // The operation that wrote the event goes on first: nobody waits for the log.
    reading ??= setImmediate()
      .then(readOn)
      .catch((thrown: unknown) => log.warn({ error: thrown }, 'the ledger could not be read'))
      .finally(() => {
        reading = undefined;
      });
  };
  const unlisten = await db.listen('ledger', look);
  return async () => {
    await unlisten();
    look();
    await reading;
    stopped = true;
  };
}

/** The fields of event data that become metrics. Other fields are only logged. */
const eventDataSchema = z.looseObject({
  durationMs: z.number().optional().catch(undefined),
  bytes: z.number().optional().catch(undefined),
  lost: z.array(z.string()).optional().catch(undefined),
  source: z.object({ kind: z.string() }).optional().catch(undefined),
  kind: z.string().optional().catch(undefined),
  phase: z.string().optional().catch(undefined),
});

function recordEvent({ serverId, log, metrics }: LedgerWatchContext, line: LedgerEvent): void {
  if (line.owner !== null && line.owner !== serverId) return;
  const data: unknown = JSON.parse(line.data);
  const { durationMs, bytes, lost, source, kind, phase } = eventDataSchema.parse(data);
  const { type } = line;
  metrics.events.inc({ type });
  if (durationMs !== undefined) metrics.lifecycleSeconds.observe({ event: type }, durationMs / 1_000);
  if (source !== undefined) metrics.starts.inc({ source: source.kind });
  if (bytes !== undefined) metrics.checkpointBytes.inc(bytes);
  for (const what of lost ?? []) metrics.losses.inc({ what });
  if (type === 'operation.phase' && phase === 'falling back') metrics.fallbacks.inc({ kind: kind ?? '' });
  if (type === 'operation.taken_over') metrics.takeovers.inc({ kind: kind ?? '' });
  log.info(
    {
      event: type,
      org: line.org,
      sandboxId: line.sandbox_id,
      state: line.state,
      previousState: line.previous_state,
      generation: line.generation,
      checkpointId: line.checkpoint_id,
      operationId: line.operation_id,
      data,
    },
    type,
  );
}
