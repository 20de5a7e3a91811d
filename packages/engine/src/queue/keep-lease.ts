/** Renewing a lease for as long as its job is worked on, and saying so when it is lost. */
import type { Clock } from '../ports/clock.ts';
import type { Database } from '../ports/database.ts';
import { LeaseLost } from './job.ts';
import { heartbeat, type LeasedJob } from './lease.ts';

export interface KeepLeaseOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly leaseMs: number;
  /** When the claim was asked for, on the monotonic clock: the lease is no older than that. */
  readonly claimedAt: number;
  /** Ends the renewing. */
  readonly until: AbortSignal;
  readonly onFault: (error: unknown) => void;
}

/** Three chances to renew before the lease runs out. */
const RENEWALS_PER_LEASE = 3;

/**
 * Resolves to false when `until` fires, and to true as soon as the lease is lost: another worker holds the
 * job, or it could not be renewed in time, so that another may hold it by now. What time this is, is read
 * from the monotonic clock: the lease in the database may be judged by a clock that jumps.
 */
export async function keepLease(job: LeasedJob, options: KeepLeaseOptions): Promise<boolean> {
  const { clock, leaseMs, until } = options;
  let heldUntil = options.claimedAt + leaseMs;
  for (;;) {
    const pause = Math.min(leaseMs / RENEWALS_PER_LEASE, Math.max(heldUntil - clock.monotonic(), 0));
    if (!(await slept(clock, pause, until))) return false;
    const asked = clock.monotonic();
    const beat = await Promise.race([
      renew(job, options),
      slept(clock, Math.max(heldUntil - asked, 0), until).then(() => 'late' as const),
    ]);
    if (until.aborted) return false;
    if (beat === 'renewed') heldUntil = asked + leaseMs;
    else if (beat === 'lost' || clock.monotonic() >= heldUntil) return true;
  }
}

async function renew(job: LeasedJob, options: KeepLeaseOptions): Promise<'renewed' | 'lost' | 'failed'> {
  try {
    await heartbeat(options.db, job, options.clock.now(), options.leaseMs);
    return 'renewed';
  } catch (error) {
    if (error instanceof LeaseLost) return 'lost';
    options.onFault(error);
    return 'failed';
  }
}

/** False when the signal cut the sleep short. */
async function slept(clock: Clock, ms: number, signal: AbortSignal): Promise<boolean> {
  await clock.sleep(ms, signal).catch(() => undefined);
  return !signal.aborted;
}
