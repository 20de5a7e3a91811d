/** The worker of builds: takes a lease on a build, runs it, makes it `ready`, and pauses its preview. */
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
import { CANNOT_PAUSE, pauseBuild, recordPauseSkipped } from '../preview/pause.ts';
import { BuildFailed, friendly } from './build-failed.ts';
import { BuildInterrupted, INTERRUPTED_RETRY_MS } from './build-interrupted.ts';
import { type BuildResult, generate } from './generate.ts';

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
    // A failed build is a completed job for the queue. Any other error but an interruption is a bug, and not retried.
    retryDelayMs: (_, error) => (error instanceof BuildInterrupted ? INTERRUPTED_RETRY_MS : undefined),
    onFailed: (tx, queued, error) => giveUp(ctx, tx, queued, error),
    onFault: (error) => {
      if (!(error instanceof LeaseLost)) ctx.report('a build worker failed', { error });
    },
  });
}

async function work(ctx: BuildContext, queued: Job, signal: AbortSignal): Promise<void> {
  const job = await findJob(ctx.db, queued.id);
  if (job === undefined || job.status === 'failed') return;
  // A worker died between ready and the pause.
  if (job.status === 'ready') return pauseAfterReady(ctx, job, signal);
  const log = new BuildLog(ctx, job.id);
  const ended = new AbortController();
  const ownSandboxes = new Set<SandboxId>();
  const unlisten = await ctx.db.listen(EVENT_CHANNEL, () => void abortWhenOver(ctx, job, ended));
  let ready: BuildJob;
  try {
    const attempt = {
      ctx,
      leased: queued,
      log,
      ownSandboxes,
      signal: AbortSignal.any([signal, ended.signal]),
    };
    const result = await generate(attempt, job);
    await log.flush();
    ready = await markReady(ctx, queued, job, result);
  } catch (thrown) {
    if (thrown instanceof BuildFailed) return;
    // A further attempt creates its own sandboxes.
    await Promise.allSettled([...ownSandboxes].map((id) => ctx.sandboxes.kill(job.org, id)));
    if (!ended.signal.aborted) throw thrown;
    return;
  } finally {
    await unlisten();
    await log.flush();
  }
  // Outside the try block, which kills sandboxes on failure: from here on the sandbox belongs to the ready build.
  await pauseAfterReady(ctx, ready, signal);
}

async function markReady(
  ctx: BuildContext,
  leased: LeasedJob,
  job: BuildJob,
  result: BuildResult,
): Promise<BuildJob> {
  const ready = await finishReady(ctx, leased, job, result);
  if (ready === undefined) throw new LeaseLost(leased);
  await ctx.pass('build.ready');
  return ready;
}

/**
 * Pauses the preview right after ready and never before (R24). A build whose preview cannot be paused is ready all the
 * same (R26). When this worker must stop, the job returns to the queue, and the next worker pauses the preview.
 */
async function pauseAfterReady(ctx: BuildContext, job: BuildJob, signal: AbortSignal): Promise<void> {
  if (job.sandboxId === null || job.pauseSettled === 1) return;
  try {
    const { pause } = await ctx.sandboxes.capabilities(job.sandboxId);
    if (pause === 'none') return await recordPauseSkipped(ctx, job, `${CANNOT_PAUSE}.`);
    await pauseBuild(ctx, job, signal);
  } catch (thrown) {
    signal.throwIfAborted();
    ctx.report('the preview of a ready build was not paused', { jobId: job.id, error: thrown });
    await recordPauseSkipped(ctx, job, TorporError.from(thrown).message);
  }
}

/** Stops the worker when the job has ended meanwhile. A cancel on any server reaches the worker this way. */
async function abortWhenOver(ctx: BuildContext, { id }: BuildJob, ended: AbortController): Promise<void> {
  const job = await findJob(ctx.db, id).catch(() => undefined);
  if (job !== undefined && isBuildOver(job.status)) ended.abort(new Error('the job is over'));
}

/** The last resort: the workers died too often, or could not record the failure. */
async function giveUp(ctx: BuildContext, tx: Transaction, queued: Job, error: TorporError): Promise<void> {
  const debugId = ctx.uuid();
  const words = friendly(error);
  await stopJob(ctx, tx, queued.id, {
    debugId,
    message: `Build failed. debug_id: ${debugId}. ${words}`,
    errorMessage: words,
  });
}
