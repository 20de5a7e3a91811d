/**
 * Quotas of an organisation, asked in the transaction that accepts an operation. What is refused here has changed
 * nothing. A pause is never refused: a quota must not keep a sandbox from going to sleep.
 */
import { type QuotaName, TorporError } from '@torpor/protocol';
import type { Queryable, Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { lockOrg } from './org.ts';
import { countSandboxes, diskMbOf } from './quota-usage.ts';

/** What an operation adds once it is done. */
export interface QuotaDemand {
  /** New sandboxes. */
  readonly sandboxes?: number;
  /** Sandboxes that will run and do not run now, new ones included. */
  readonly running?: number;
  /** The memory limits of those. */
  readonly memoryMb?: number;
  /** Whether it writes a checkpoint that is kept beside those there are. */
  readonly checkpoint?: boolean;
}

/**
 * Throws `quota_exceeded` when the organisation has no room. From here to the commit the organisation's row is
 * locked, so that two operations at once cannot both take the last place. `by` is the sandbox whose operation asks.
 */
export async function requireQuota(
  tx: Transaction,
  org: string,
  adds: QuotaDemand,
  by: Sandbox | null = null,
): Promise<void> {
  const locked = await lockOrg(tx, org);
  if (locked === undefined) return refuseDeleted(tx, org);
  const { quotas } = locked;
  const refuseAbove = (quota: QuotaName, used: number, more: number) => {
    const limit = quotas[quota];
    if (limit !== null && more > 0 && used + more > limit) throw quotaExceeded(org, quota, limit, used);
  };
  const { sandboxes = 0, running = 0, memoryMb = 0, checkpoint = false } = adds;
  if (quotas.sandboxes !== null || quotas.runningSandboxes !== null || quotas.memoryMb !== null) {
    const now = await countSandboxes(tx, org, by?.id ?? null);
    refuseAbove('sandboxes', now.kept, sandboxes);
    refuseAbove('runningSandboxes', now.running, running);
    refuseAbove('memoryMb', now.memoryMb, memoryMb);
  }
  // Nobody knows yet how large the checkpoint will be: the one that passes the limit is the last.
  if (quotas.diskMb !== null && (checkpoint || sandboxes > 0)) {
    refuseAbove('diskMb', await diskMbOf(tx, org), 1);
  }
}

/** New sandboxes that run as soon as they are there. */
export function newSandboxes(count: number, memoryMb: number | null): QuotaDemand {
  return { sandboxes: count, running: count, memoryMb: count * (memoryMb ?? 0) };
}

/** A sandbox that sleeps and is to run. */
export function wokenSandbox({ memoryMb }: Sandbox): QuotaDemand {
  return { running: 1, memoryMb: memoryMb ?? 0 };
}

/** A request may be under way while the last key of its organisation is revoked and the organisation deleted. */
async function refuseDeleted(tx: Queryable, org: string): Promise<void> {
  const rows = await tx.query('SELECT id FROM orgs WHERE id = $1', [org]);
  if (rows.length > 0) throw new TorporError('forbidden', `The organisation "${org}" was deleted.`);
}

/** Total, so that a quota without a word on what to do does not compile. */
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
