/** Works on builds: one lease each, `ready` at the end, then sleep. */
import {
  expireLeases,
  type Job,
  type LeasedJob,
  LeaseLost,
  startWorker,
  type Transaction,
  type Worker,
} from '@torpor/engine';
import { isBuildOver, type SandboxId, TorporError } from '@torpor/protocol';
import { type BuildContext, EVENT_CHANNEL, QUEUE } from '../context.ts';
import { finishReady, stopJob } from '../jobs/finish.ts';
import { type BuildJob, findJob } from '../jobs/job.ts';
import { BuildLog } from '../logs/build-log.ts';
import { CANNOT_PAUSE, noteNoPause, pauseBuild } from '../preview/pause.ts';
import { BuildFailed, friendly } from './build-failed.ts';
import { generate, type Made } from './generate.ts';

export async function startBuildWorker(ctx: BuildContext): Promise<Worker> {
  const { db, clock, settings } = ctx;
  if (ctx.alone) await db.transaction((tx) => expireLeases(tx, QUEUE, clock.now()));
  return startWorker({
    db,
    clock,
    queues: [QUEUE],
    owner: ctx.serverId,
    concurrency: settings.workers,
    leaseMs: settings.leaseMs,
    pollMs: settings.pollMs,
    stopWithinMs: settings.stopWithinMs,
    handle: async (queued, signal) => {
      await work(ctx, queued, signal);
      return undefined;
    },
    // A build that failed has ended well as far as the queue is concerned; what is left is a fault of ours.
    retryDelayMs: () => undefined,
    onFailed: (tx, queued, error) => giveUp(ctx, tx, queued, error),
    onFault: (error) => {
      if (!(error instanceof LeaseLost)) ctx.report('a worker of builds had a fault', { error });
    },
  });
}

async function work(ctx: BuildContext, queued: Job, signal: AbortSignal): Promise<void> {
  const job = await findJob(ctx.db, queued.id);
  if (job === undefined || job.status === 'failed') return;
  // Died between the two: it is ready and should sleep.
  if (job.status === 'ready') return sleepAfterReady(ctx, job, signal);
  const log = new BuildLog(ctx, job.id);
  const ended = new AbortController();
  const own = new Set<SandboxId>();
  const unlisten = await ctx.db.listen(EVENT_CHANNEL, () => void lookForEnd(ctx, job, ended));
  let ready: BuildJob;
  try {
    const attempt = { ctx, held: queued, log, own, signal: AbortSignal.any([signal, ended.signal]) };
    const made = await generate(attempt, job);
    await log.flush();
    ready = await becomeReady(ctx, queued, job, made);
  } catch (thrown) {
    if (thrown instanceof BuildFailed) return;
    // Another attempt, if there is one, begins with sandboxes of its own.
    await Promise.allSettled([...own].map((id) => ctx.sandboxes.kill(job.org, id)));
    if (!ended.signal.aborted) throw thrown;
    return;
  } finally {
    await unlisten();
    await log.flush();
  }
  // Outside of the part that ends sandboxes when it fails: from here on the sandbox belongs to the ready build.
  await sleepAfterReady(ctx, ready, signal);
}

async function becomeReady(ctx: BuildContext, held: LeasedJob, job: BuildJob, made: Made): Promise<BuildJob> {
  const ready = await finishReady(ctx, held, job, made);
  if (ready === undefined) throw new LeaseLost(held);
  await ctx.pass('build.ready');
  return ready;
}

/**
 * Right after ready and never before (R24). One that cannot sleep is ready all the same (R26). When this worker has
 * to leave, the job goes back to the queue and the next worker pauses the preview.
 */
async function sleepAfterReady(ctx: BuildContext, job: BuildJob, signal: AbortSignal): Promise<void> {
  if (job.sandboxId === null || job.pauseSettled === 1) return;
  try {
    const { pause } = await ctx.sandboxes.capabilities(job.sandboxId);
    if (pause === 'none') return await noteNoPause(ctx, job, `${CANNOT_PAUSE}.`);
    await pauseBuild(ctx, job, signal);
  } catch (thrown) {
    signal.throwIfAborted();
    ctx.report('a ready build was not put to sleep', { jobId: job.id, error: thrown });
    await noteNoPause(ctx, job, TorporError.from(thrown).message);
  }
}

/** Somebody else may have ended the job: a cancel reaches the worker by this, wherever it came in. */
async function lookForEnd(ctx: BuildContext, { id }: BuildJob, ended: AbortController): Promise<void> {
  const job = await findJob(ctx.db, id).catch(() => undefined);
  if (job !== undefined && isBuildOver(job.status)) ended.abort(new Error('the job is over'));
}

/** The fallback: the worker died too often, or could not even say that the build failed. */
async function giveUp(ctx: BuildContext, tx: Transaction, queued: Job, error: TorporError): Promise<void> {
  const debugId = ctx.uuid();
  const words = friendly(error);
  await stopJob(ctx, tx, queued.id, {
    debugId,
    message: `Build failed. debug_id: ${debugId}. ${words}`,
    errorMessage: words,
  });
}
