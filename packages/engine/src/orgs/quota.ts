/**
 * Checks the quotas of an organisation in the transaction that accepts an operation, so that a refused operation has
 * changed nothing. A pause is never refused: a quota must not keep a sandbox running.
 */
import { type QuotaName, TorporError } from '@torpor/protocol';
import type { Queryable, Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { lockOrg } from './org.ts';
import { countSandboxes, diskMbOf } from './quota-usage.ts';

/** What an operation will have added when it is done. */
export interface QuotaDemand {
  /** New sandboxes. */
  readonly sandboxes?: number;
  /** Sandboxes that will run and do not run now, including new ones. */
  readonly running?: number;
  /** The sum of the memory limits of those sandboxes. */
  readonly memoryMb?: number;
  /** Whether the operation writes a checkpoint that is kept in addition to the existing ones. */
  readonly checkpoint?: boolean;
}

/**
 * Throws `quota_exceeded` when the demand exceeds a quota. From here to the commit the organisation's row is locked, so
 * that two concurrent operations cannot both take the last place. `by` is the sandbox whose operation asks.
 */
export async function requireQuota(
  tx: Transaction,
  org: string,
  demand: QuotaDemand,
  by: Sandbox | null = null,
): Promise<void> {
  const locked = await lockOrg(tx, org);
  if (locked === undefined) return refuseDeleted(tx, org);
  const { quotas } = locked;
  const refuseAbove = (quota: QuotaName, used: number, more: number) => {
    const limit = quotas[quota];
    if (limit !== null && more > 0 && used + more > limit) throw quotaExceeded(org, quota, limit, used);
  };
  const { sandboxes = 0, running = 0, memoryMb = 0, checkpoint = false } = demand;
  if (quotas.sandboxes !== null || quotas.runningSandboxes !== null || quotas.memoryMb !== null) {
    const now = await countSandboxes(tx, org, by?.id ?? null);
    refuseAbove('sandboxes', now.kept, sandboxes);
    refuseAbove('runningSandboxes', now.running, running);
    refuseAbove('memoryMb', now.memoryMb, memoryMb);
  }
  // The size of the checkpoint is not known yet, so the checkpoint that exceeds the limit is still accepted.
  if (quotas.diskMb !== null && (checkpoint || sandboxes > 0)) {
    refuseAbove('diskMb', await diskMbOf(tx, org), 1);
  }
}

/** New sandboxes run as soon as they are created. */
export function newSandboxes(count: number, memoryMb: number | null): QuotaDemand {
  return { sandboxes: count, running: count, memoryMb: count * (memoryMb ?? 0) };
}

/** A paused sandbox that is to run. */
export function wokenSandbox({ memoryMb }: Sandbox): QuotaDemand {
  return { running: 1, memoryMb: memoryMb ?? 0 };
}

/** A request may be under way while the last key of its organisation is revoked and the organisation deleted. */
async function refuseDeleted(tx: Queryable, org: string): Promise<void> {
  const rows = await tx.query('SELECT id FROM orgs WHERE id = $1', [org]);
  if (rows.length > 0) throw new TorporError('forbidden', `The organisation "${org}" was deleted.`);
}

/** Typed as a full Record so that a new quota needs a hint. */
const HINTS: Readonly<Record<QuotaName, string>> = {
  runningSandboxes: 'Pause or kill a sandbox that is not needed now, or ask the operator for a higher quota.',
  sandboxes: 'Kill a sandbox that is not needed any more, or ask the operator for a higher quota.',
  memoryMb: 'Pause a sandbox, give this one less memory, or ask the operator for a higher quota.',
  diskMb: 'Delete checkpoints or sandboxes, or ask the operator for a higher quota.',
  runningBuilds: 'Wait until a build is done, or ask the operator for a higher quota.',
  queuedBuilds: 'Wait until a build has begun, or ask the operator for a higher quota.',
};

export function quotaExceeded(org: string, quota: QuotaName, limit: number, used: number): TorporError {
  return new TorporError(
    'quota_exceeded',
    `The quota ${quota} of "${org}" is ${limit}, and ${used} are in use.`,
    { hint: HINTS[quota], details: { quota, limit, used } },
  );
}
