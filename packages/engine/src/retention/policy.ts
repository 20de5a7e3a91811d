/**
 * How long a paused sandbox is kept: by the retention of the sandbox, else of its organisation, else by the server's
 * setting. In the database 0 means for good, and null means that the next level decides.
 */
import type { Retention, SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { listPlaceholders } from '../ledger/placeholders.ts';
import type { Queryable, Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';

export function toStoredRetention(retention: Retention | undefined): number | null {
  if (retention === undefined || retention === 'default') return null;
  return retention === null ? 0 : retention * 1_000;
}

export function toRetention(storedMs: number | null): Retention {
  if (storedMs === null) return 'default';
  return storedMs === 0 ? null : storedMs / 1_000;
}

/** SQL for the retention of the sandbox `s` of a query; `fallback` is the placeholder of the server's setting. */
export function keptForMs(fallback: string): string {
  return `COALESCE(s.delete_paused_after_ms,
    (SELECT o.delete_paused_after_ms FROM orgs o WHERE o.id = s.org), CAST(${fallback} AS {integer}))`;
}

/** Milliseconds by organisation, for sandboxes without a retention of their own; 0 means for good. */
export async function retentionOfOrgs(
  db: Queryable,
  orgs: readonly string[],
  fallbackMs: number,
): Promise<(org: string) => number> {
  if (orgs.length === 0) return () => fallbackMs;
  const rows = await db.query<{ id: string; ms: number | null }>(
    `SELECT id, delete_paused_after_ms AS ms FROM orgs WHERE id IN (${listPlaceholders(orgs.length)})`,
    orgs,
  );
  const known = new Map(rows.map(({ id, ms }) => [id, ms]));
  return (org) => known.get(org) ?? fallbackMs;
}

/** The retention of one sandbox, and when it deletes the sandbox. */
export interface AppliedRetention {
  /** 0 means for good. */
  readonly keptForMs: number;
  /** Null while the sandbox is not paused, or is kept for good. Never earlier than the notice period allows. */
  readonly deletesAt: number | null;
}

export function appliedTo(
  { clock, settings }: Pick<Context, 'clock' | 'settings'>,
  sandbox: Sandbox,
  ofOrg: (org: string) => number,
): AppliedRetention {
  const kept = sandbox.deletePausedAfterMs ?? ofOrg(sandbox.org);
  if (kept === 0 || sandbox.state !== 'paused' || sandbox.unusedSince === null) {
    return { keptForMs: kept, deletesAt: null };
  }
  const earliest = clock.now() + settings.expiryNoticeMs;
  return {
    keptForMs: kept,
    deletesAt: sandbox.deletesAt ?? Math.max(sandbox.unusedSince + kept, earliest),
  };
}

/** A paused sandbox was used without a resume: its retention starts again. The caller holds the row's lock. */
export async function markUsed(tx: Transaction, id: SandboxId, now: number): Promise<void> {
  await tx.query(
    'UPDATE sandboxes SET unused_since = $2, deletes_at = NULL WHERE id = $1 AND unused_since IS NOT NULL',
    [id, now],
  );
}
