/** Reads the log of a build: in pages from its end backwards, and as a stream of new lines. */
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

/** Lines per page of the stream. A reader that begins after the end of the build gets this many last lines. */
const PAGE_LINES = 200;

/**
 * Every line from now on, or after the given one. When the build is over, the remaining lines and `done`. The wait
 * begins before the read, and a build writes its last line before it ends, so that a reader misses neither.
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
  const newest = isBuildOver(start.status) ? Math.max(0, start.lastLine - PAGE_LINES) : start.lastLine;
  let last = after ?? newest;
  while (!signal.aborted) {
    const waiting = new AbortController();
    const grown = growth.next(AbortSignal.any([signal, waiting.signal]));
    try {
      const job = await findJob(db, id);
      const rows = await db.query<LineRow>(
        `SELECT id, at, source, phase, text FROM build_logs WHERE job_id = $1 AND id > $2 ORDER BY id LIMIT $3`,
        [id, last, PAGE_LINES],
      );
      for (const row of rows) {
        last = row.id;
        yield { is: 'line', line: toLine(row) };
      }
      if (rows.length === PAGE_LINES) continue;
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
