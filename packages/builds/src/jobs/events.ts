/** The events of a build: written in the transaction of the change, and read so that no reader misses the last one. */
import type { NotificationSubscription, Queryable, Transaction } from '@torpor/engine';
import { type BuildEvent, buildEventSchema, isBuildOver, type JobId, STAGE_LABELS } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { type BuildJob, findJob } from './job.ts';

/** `job` is the state after the change. The caller holds the lock on its row. */
export async function insertEvent(
  tx: Transaction,
  job: BuildJob,
  type: BuildEvent['type'],
  message: string,
  at: number,
): Promise<void> {
  const event: BuildEvent = {
    type,
    job_id: job.id,
    status: job.status,
    stage: job.status,
    stage_label: STAGE_LABELS[job.status],
    message,
    timestamp: new Date(at).toISOString(),
    ...(job.debugId === null ? {} : { debug_id: job.debugId }),
  };
  await tx.query('INSERT INTO build_events (job_id, seq, type, data) VALUES ($1, $2, $3, $4)', [
    job.id,
    job.lastEvent,
    type,
    JSON.stringify(event),
  ]);
}

export interface NumberedEvent {
  readonly seq: number;
  readonly event: BuildEvent;
}

const PAGE = 200;

async function readEvents(db: Queryable, id: JobId, after: number): Promise<NumberedEvent[]> {
  const rows = await db.query<{ seq: number; data: string }>(
    'SELECT seq, data FROM build_events WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $3',
    [id, after, PAGE],
  );
  return rows.map(({ seq, data }) => ({ seq, event: buildEventSchema.parse(JSON.parse(data)) }));
}

/** The latest stage event. Every job has one, because the first is written together with its row. */
export async function lastStage(db: Queryable, id: JobId): Promise<NumberedEvent> {
  const [row] = await db.query<{ seq: number; data: string }>(
    `SELECT seq, data FROM build_events WHERE job_id = $1 AND type = 'build.stage.started'
     ORDER BY seq DESC LIMIT 1`,
    [id],
  );
  if (row === undefined) throw new Error(`Job ${id} has no event.`);
  return { seq: row.seq, event: buildEventSchema.parse(JSON.parse(row.data)) };
}

/**
 * `over`: up to the event that ends the build. `settled`: also the outcome of the pause after `ready`, and any other
 * event until then.
 */
export interface FollowOptions {
  readonly after: number;
  readonly until: 'over' | 'settled';
}

/** Whether no more events will follow: the pause after `ready` has happened, has failed, or takes too long. */
export function isSettled(job: BuildJob, now: number, followAfterReadyMs: number): boolean {
  if (job.status !== 'ready') return isBuildOver(job.status);
  if (job.sandboxId === null || job.pauseSettled === 1) return true;
  return now >= (job.completedAt ?? 0) + followAfterReadyMs;
}

/**
 * Every event after the given one, then every new one, until the build is over or settled.
 *
 * The wait begins before the read, and the last event is written together with the state. So a reader that sees the
 * final state also finds its event. A reader that already has the last event returns at once (R22).
 */
export async function* followEvents(
  { db, clock, settings }: Pick<BuildContext, 'db' | 'clock' | 'settings'>,
  growth: Pick<NotificationSubscription, 'next'>,
  id: JobId,
  { after, until }: FollowOptions,
  signal: AbortSignal,
): AsyncGenerator<NumberedEvent> {
  const isDone = (job: BuildJob) =>
    until === 'over' ? isBuildOver(job.status) : isSettled(job, clock.now(), settings.followAfterReadyMs);
  let last = after;
  while (!signal.aborted) {
    const waiting = new AbortController();
    const grown = growth.next(AbortSignal.any([signal, waiting.signal]));
    try {
      const job = await findJob(db, id);
      const page = await readEvents(db, id, last);
      for (const numbered of page) {
        last = numbered.seq;
        yield numbered;
        if (until === 'over' && isBuildOver(numbered.event.status)) return;
      }
      if (page.length < PAGE && (job === undefined || isDone(job))) return;
      if (page.length === 0) await grown;
    } finally {
      waiting.abort();
    }
  }
}
