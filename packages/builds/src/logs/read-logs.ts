/** Reads the log of a build: pages from its end backwards, and a stream of what is said from now on. */
import type { NotificationSubscription, Queryable } from '@torpor/engine';
import {
  type BuildLogLine,
  type BuildLogPage,
  type BuildState,
  isBuildOver,
  type JobId,
} from '@torpor/protocol';
import { findJob } from '../jobs/job.ts';

interface LineRow {
  readonly id: number;
  readonly at: number;
  readonly source: string;
  readonly phase: BuildState;
  readonly text: string;
  readonly [column: string]: string | number;
}

function toLine({ id, at, source, phase, text }: LineRow): BuildLogLine {
  return { id, ts: new Date(at).toISOString(), source, text, phase };
}

export async function readLogs(
  db: Queryable,
  id: JobId,
  {
    beforeId = Number.MAX_SAFE_INTEGER,
    limit,
  }: { readonly beforeId?: number | undefined; readonly limit: number },
): Promise<BuildLogPage> {
  const rows = await db.query<LineRow>(
    `SELECT id, at, source, phase, text FROM build_logs WHERE job_id = $1 AND id < $2
     ORDER BY id DESC LIMIT $3`,
    [id, beforeId, limit + 1],
  );
  const lines = rows.slice(0, limit).reverse().map(toLine);
  return { lines, has_more: rows.length > limit, oldest_id: lines[0]?.id ?? null };
}

export type LogItem =
  | { readonly is: 'line'; readonly line: BuildLogLine }
  | { readonly is: 'done'; readonly status: BuildState };

/** How much of what was said before the end is shown to those who came after it. */
const DRAINED = 200;

/**
 * Every line from now on, or after the one that the reader has; when the build is over, what is left and `done`. The wait is armed before the read, and
 * a build writes its last line before it ends, so that neither is missed.
 */
export async function* followLogs(
  db: Queryable,
  growth: Pick<NotificationSubscription, 'next'>,
  id: JobId,
  signal: AbortSignal,
  after?: number,
): AsyncGenerator<LogItem> {
  const start = await findJob(db, id);
  if (start === undefined) return;
  const newest = isBuildOver(start.status) ? Math.max(0, start.lastLine - DRAINED) : start.lastLine;
  let last = after ?? newest;
  while (!signal.aborted) {
    const waiting = new AbortController();
    const grown = growth.next(AbortSignal.any([signal, waiting.signal]));
    try {
      const job = await findJob(db, id);
      const rows = await db.query<LineRow>(
        `SELECT id, at, source, phase, text FROM build_logs WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $3`,
        [id, last, DRAINED],
      );
      for (const row of rows) {
        last = row.id;
        yield { is: 'line', line: toLine(row) };
      }
      if (rows.length === DRAINED) continue;
      if (job === undefined || isBuildOver(job.status)) {
        yield { is: 'done', status: job?.status ?? 'failed' };
        return;
      }
      await grown;
    } finally {
      waiting.abort();
    }
  }
}
