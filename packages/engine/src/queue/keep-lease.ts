/** Renews a lease while a worker runs its job, and reports when the lease is lost. */
import type { Clock } from '../ports/clock.ts';
import type { Database } from '../ports/database.ts';
import { LeaseLost } from './job.ts';
import { heartbeat, type LeasedJob } from './lease.ts';

export interface KeepLeaseOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly leaseMs: number;
  /** When the claim was sent, by the monotonic clock: the lease is no older than that. */
  readonly claimedAt: number;
  /** Stops the renewals. */
  readonly until: AbortSignal;
  readonly onFault: (error: unknown) => void;
}

/** A worker can fail to renew twice before the lease runs out. */
const RENEWALS_PER_LEASE = 3;

/**
 * Resolves to false when `until` fires, and to true as soon as the lease is lost: another worker holds the job, or the
 * lease could not be renewed in time, so that another worker may hold the job by now. Time is read from the monotonic
 * clock, because the wall clock may jump.
 */
export async function keepLease(job: LeasedJob, options: KeepLeaseOptions): Promise<boolean> {
  const { clock, leaseMs, until } = options;
  let heldUntil = options.claimedAt + leaseMs;
  for (;;) {
    const pause = Math.min(leaseMs / RENEWALS_PER_LEASE, Math.max(heldUntil - clock.monotonic(), 0));
    if (!(await slept(clock, pause, until))) return false;
    const asked = clock.monotonic();
    const renewal = await Promise.race([
      renew(job, options),
      slept(clock, Math.max(heldUntil - asked, 0), until).then(() => 'late' as const),
    ]);
    if (until.aborted) return false;
    if (renewal === 'renewed') heldUntil = asked + leaseMs;
    else if (renewal === 'lost' || clock.monotonic() >= heldUntil) return true;
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
