/**
 * What an organisation has used. A trigger projects the spans in which sandboxes ran and were paused from the ledger, in
 * the transaction of the event (`0008_organisations.sql`), so a crash cannot lose or double a span. A query reads the
 * spans that overlap its range, by an index; it never reads the events.
 */
import type { UsageView } from '@torpor/protocol';
import type { Queryable } from '../ports/database.ts';
import { checkpointBytes } from './quota-usage.ts';

const HOUR_MS = 3_600_000;

/** `from` and `to` are times in milliseconds; `to` is not in the future. */
export async function usageOf(db: Queryable, org: string, from: number, to: number): Promise<UsageView> {
  const { running, paused } = await readSpans(db, org, from, to);
  return {
    orgId: org,
    from,
    to,
    runningSeconds: running.ms / 1_000,
    pausedSeconds: paused.ms / 1_000,
    memoryMbSeconds: running.hasUnlimited ? null : running.mbSeconds,
    diskBytes: await checkpointBytes(db, org),
    diskByteSeconds: await readDiskByteSeconds(db, org, from, to),
    egressBytes: running.hasUncounted ? null : await readEgress(db, org, from, to),
  };
}

interface SpanTotals {
  readonly ms: number;
  readonly mbSeconds: number;
  readonly hasUnlimited: boolean;
  readonly hasUncounted: boolean;
}
const NOTHING: SpanTotals = { ms: 0, mbSeconds: 0, hasUnlimited: false, hasUncounted: false };

/** Sums the spans that overlap the range, each cut to the range. Spans that have not ended count too. */
async function readSpans(db: Queryable, org: string, from: number, to: number) {
  const rows = await db.query<{
    kind: string;
    ms: number;
    mb_seconds: number;
    unlimited: number;
    uncounted: number;
  }>(
    `SELECT kind, SUM(ms) AS ms, CAST(COALESCE(SUM(ms * 1.0 * memory_mb), 0) / 1000 AS {real}) AS mb_seconds,
       SUM(CASE WHEN memory_mb IS NULL THEN 1 ELSE 0 END) AS unlimited,
       SUM(CASE WHEN counts_egress = 0 THEN 1 ELSE 0 END) AS uncounted
     FROM (
       SELECT kind, memory_mb, counts_egress, CASE WHEN ended_at < $3 THEN ended_at ELSE $3 END
         - CASE WHEN started_at > $2 THEN started_at ELSE $2 END AS ms
       FROM usage_spans WHERE org = $1 AND ended_at > $2 AND started_at < $3
       UNION ALL
       SELECT kind, memory_mb, counts_egress, $3 - CASE WHEN started_at > $2 THEN started_at ELSE $2 END AS ms
       FROM usage_spans WHERE org = $1 AND ended_at IS NULL AND started_at < $3
     ) AS parts
     GROUP BY kind`,
    [org, from, to],
  );
  const spent = (kind: string): SpanTotals => {
    const row = rows.find((one) => one.kind === kind);
    if (row === undefined) return NOTHING;
    const { ms, mb_seconds: mbSeconds, unlimited, uncounted } = row;
    return { ms, mbSeconds, hasUnlimited: unlimited > 0, hasUncounted: uncounted > 0 };
  };
  return { running: spent('running'), paused: spent('paused') };
}

/** In floating point: bytes times the milliseconds of a month do not fit into 64 bits. */
async function readDiskByteSeconds(db: Queryable, org: string, from: number, to: number): Promise<number> {
  const [row] = await db.query<{ byte_seconds: number }>(
    `SELECT CAST(COALESCE(SUM(bytes * 1.0 * (
         CASE WHEN deleted_at < $3 THEN deleted_at ELSE $3 END - CASE WHEN sealed_at > $2 THEN sealed_at ELSE $2 END
       ) / 1000), 0) AS {real}) AS byte_seconds
     FROM checkpoints WHERE org = $1 AND sealed_at < $3 AND (deleted_at IS NULL OR deleted_at > $2)`,
    [org, from, to],
  );
  return row?.byte_seconds ?? 0;
}

/** The hours that begin in the range, and the hour in which the range begins. */
async function readEgress(db: Queryable, org: string, from: number, to: number) {
  const [row] = await db.query<{ sent: number; received: number }>(
    `SELECT COALESCE(SUM(sent), 0) AS sent, COALESCE(SUM(received), 0) AS received
     FROM usage_egress WHERE org = $1 AND hour > $2 AND hour < $3`,
    [org, from - HOUR_MS, to],
  );
  return { sent: row?.sent ?? 0, received: row?.received ?? 0 };
}

export interface OrgTotals {
  readonly org: string;
  readonly runningMs: number;
  readonly pausedMs: number;
  readonly diskBytes: number;
}

/** Stands for all organisations that have no counters of their own. No organisation can have this name. */
export const OTHER_ORGS = '_others';

/**
 * The total use of all time, for counters. The oldest `apart` organisations have counters of their own, so that an
 * organisation never loses its counters to a newer one. The others are summed up.
 */
export async function totalsOfOrgs(db: Queryable, now: number, apart: number): Promise<OrgTotals[]> {
  const known = await db.query<{ id: string }>('SELECT id FROM orgs ORDER BY created_at, id LIMIT $1', [
    apart,
  ]);
  const spent = await db.query<{ org: string; kind: string; ms: number }>(
    `SELECT org, kind, ms FROM usage_totals
     UNION ALL
     SELECT org, kind, SUM(CASE WHEN started_at < $1 THEN $1 - started_at ELSE 0 END) FROM usage_spans
     WHERE ended_at IS NULL GROUP BY org, kind`,
    [now],
  );
  const kept = await db.query<{ org: string; bytes: number }>(
    `SELECT org, CAST(COALESCE(SUM(bytes), 0) AS {integer}) AS bytes FROM checkpoints
     WHERE state = 'sealed' AND org <> '' GROUP BY org`,
  );
  const totals = new Map(known.map(({ id }) => [id, { org: id, runningMs: 0, pausedMs: 0, diskBytes: 0 }]));
  const of = (org: string) => {
    const name = totals.has(org) ? org : OTHER_ORGS;
    const total = totals.get(name) ?? { org: name, runningMs: 0, pausedMs: 0, diskBytes: 0 };
    totals.set(name, total);
    return total;
  };
  for (const { org, kind, ms } of spent) of(org)[kind === 'running' ? 'runningMs' : 'pausedMs'] += ms;
  for (const { org, bytes } of kept) of(org).diskBytes += bytes;
  return [...totals.values()];
}
