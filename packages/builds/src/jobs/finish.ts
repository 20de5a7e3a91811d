/** The two ends of a build. Each frees its slots in the same transaction, for whoever waits. */
import { type LeasedJob, requireLease, type Transaction, withdraw } from '@torpor/engine';
import type { JobId } from '@torpor/protocol';
import type { BuildContext } from '../context.ts';
import { admit, lockGate } from './admission.ts';
import type { BuildJob } from './job.ts';
import { type JobChange, transition } from './transition.ts';
import { learnDuration } from './usage.ts';
import { takeVersion } from './version.ts';

/** `ready`, with the version that is its own from this moment on. Only who holds the lease may say so. */
export async function finishReady(
  ctx: BuildContext,
  held: LeasedJob,
  job: BuildJob,
  change: JobChange,
): Promise<BuildJob | undefined> {
  return ctx.db.transaction(async (tx) => {
    await lockGate(tx);
    await requireLease(tx, held);
    const buildVersion = await takeVersion(tx, job.org, job.projectId);
    const message = 'Build complete!';
    const previewUrl = change.previewUrl ?? null;
    const ready = await transition(tx, job.id, 'ready', {
      at: ctx.clock.now(),
      // For those who only read the stream (R13).
      message: previewUrl === null ? message : JSON.stringify({ message, preview_url: previewUrl }),
      change: { ...change, buildVersion },
    });
    if (ready === undefined) return undefined;
    await learnDuration(ctx, tx, ready);
    await admit(ctx, tx);
    return ready;
  });
}

export interface Ending {
  readonly debugId: string;
  /** For people. */
  readonly message: string;
  readonly errorMessage: string;
}

/** `failed`, by whoever holds the lease. */
export async function finishFailed(
  ctx: BuildContext,
  held: LeasedJob,
  id: JobId,
  ending: Ending,
): Promise<BuildJob | undefined> {
  return ctx.db.transaction(async (tx) => {
    await lockGate(tx);
    await requireLease(tx, held);
    return end(ctx, tx, id, ending);
  });
}

/** `failed`, whoever holds it: nothing that its worker writes from here on counts (R19). */
export async function stopJob(
  ctx: BuildContext,
  tx: Transaction,
  id: JobId,
  ending: Ending,
): Promise<BuildJob | undefined> {
  await lockGate(tx);
  const failed = await end(ctx, tx, id, ending);
  if (failed !== undefined) await withdraw(tx, id, ctx.clock.now());
  return failed;
}

async function end(
  ctx: BuildContext,
  tx: Transaction,
  id: JobId,
  { debugId, message, errorMessage }: Ending,
) {
  const change = { debugId, errorMessage };
  const failed = await transition(tx, id, 'failed', { at: ctx.clock.now(), message, change });
  if (failed !== undefined) await admit(ctx, tx);
  return failed;
}
