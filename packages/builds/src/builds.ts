/**
 * Builds: the calls that the APIs make, and the worker behind them. Start reading at `pipeline/generate.ts`, then
 * `jobs/transition.ts` (the only write of the state) and `jobs/admission.ts` (which builds may run now).
 */
import { NotificationSubscription, type Worker } from '@torpor/engine';
import {
  type BuildCancelled,
  type BuildDocs,
  type BuildLogPage,
  type BuildRequest,
  type BuildResumed,
  type BuildSnapshot,
  type BuildStarted,
  type BuildStatus,
  type IterationsGranted,
  isBuildOver,
  type JobView,
  type PreviewCheck,
  pageOf,
  type RunnerName,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { type BuildContext, EVENT_CHANNEL, LOG_CHANNEL } from './context.ts';
import { docsOf } from './docs/read-docs.ts';
import { lockAdmission } from './jobs/admission.ts';
import { type FollowOptions, followEvents, isSettled, lastStage, type NumberedEvent } from './jobs/events.ts';
import { cancelJob } from './jobs/finish.ts';
import { lockRoot } from './jobs/iteration-root.ts';
import { type BuildJob, getJob, listJobs, lockJob, type Owner } from './jobs/job.ts';
import { requireFiles, requireLogs, retentionRound } from './jobs/retention.ts';
import { readFiles } from './jobs/stored-files.ts';
import { type BuildSubmission, submit } from './jobs/submit.ts';
import { changeJob } from './jobs/transition.ts';
import { admitWaiting, failStale, queueScheduled } from './jobs/upkeep.ts';
import { estimateWait, iterationsAllowed, positionOf, usageOf } from './jobs/usage.ts';
import { predictVersion } from './jobs/version.ts';
import { followLogs, type LogItem, readLogs } from './logs/read-logs.ts';
import { killLeftoverSandboxes, killSandboxes } from './pipeline/leftover-sandboxes.ts';
import { startBuildWorker } from './pipeline/worker.ts';
import { planOf } from './plans.ts';
import { checkEmbedding } from './preview/embedding.ts';
import { JoiningMutex } from './preview/joining-mutex.ts';
import { pauseOnRequest } from './preview/pause.ts';
import { resumeBuild } from './preview/resume.ts';
import { statusOf } from './preview/status.ts';
import type { GeneratedFile } from './runners/generated-files.ts';

export interface BuildsOptions {
  /** The runner of requests that do not name one. */
  readonly defaultRunner: RunnerName;
}

export class Builds {
  readonly #ctx: BuildContext;
  readonly #options: BuildsOptions;
  readonly #events: NotificationSubscription;
  readonly #logs: NotificationSubscription;
  readonly #mutex = new JoiningMutex();
  readonly #stopping = new AbortController();
  #worker: Worker | undefined;
  #upkeepLoop: Promise<void> = Promise.resolve();
  /** When the next retention round is due, and after which build it continues. */
  #retention = { dueAt: 0, after: 0 };

  constructor(ctx: BuildContext, options: BuildsOptions) {
    this.#ctx = ctx;
    this.#options = options;
    const { clock, settings } = ctx;
    this.#events = new NotificationSubscription(clock, settings.noticeAtLeastEveryMs, EVENT_CHANNEL);
    this.#logs = new NotificationSubscription(clock, settings.noticeAtLeastEveryMs, LOG_CHANNEL);
  }

  async start(): Promise<void> {
    await this.#events.start(this.#ctx.db);
    await this.#logs.start(this.#ctx.db);
    this.#worker = await startBuildWorker(this.#ctx);
    this.#upkeepLoop = this.#runUpkeepLoop();
  }

  /** Returns unfinished builds to the queue, within `stopWithinMs`. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#worker?.stop();
    await this.#upkeepLoop;
    await this.#events.stop();
    await this.#logs.stop();
  }

  /** One round of all background tasks. */
  async upkeep(): Promise<void> {
    const retain = () => this.#runRetention();
    for (const round of [queueScheduled, admitWaiting, failStale, killLeftoverSandboxes, retain]) {
      await round(this.#ctx).catch((thrown: unknown) =>
        this.#ctx.report('an upkeep task of the builds failed', { error: thrown }),
      );
    }
  }

  async begin(owner: Owner, request: BuildRequest): Promise<BuildStarted> {
    const job = await this.#accept(owner, request);
    const status = job.status === 'scheduled' ? 'scheduled' : 'queued';
    return { job_id: job.id, status, build_version: await this.#predictedVersion(job) };
  }

  async enqueue(owner: Owner, request: BuildRequest): Promise<JobView> {
    const job = await this.#accept(owner, request);
    return this.#view(job, true);
  }

  async job(owner: Owner, id: string): Promise<JobView> {
    return this.#view(await getJob(this.#ctx.db, owner, id), false);
  }

  async status(owner: Owner, id: string): Promise<BuildStatus> {
    return statusOf(this.#ctx, await getJob(this.#ctx.db, owner, id));
  }

  async list(owner: Owner, before: number, limit: number) {
    const found = await listJobs(this.#ctx.db, owner, before, limit + 1);
    const { items, nextCursor } = pageOf(found, limit, ({ number }) => String(number));
    return { items: await Promise.all(items.map((job) => statusOf(this.#ctx, job))), nextCursor };
  }

  async cancel(owner: Owner, id: string): Promise<BuildCancelled> {
    const { id: jobId } = await getJob(this.#ctx.db, owner, id);
    const job = await cancelJob(this.#ctx, jobId);
    await this.#ctx.pass('build.cancelled');
    await killSandboxes(this.#ctx, job).catch((thrown: unknown) =>
      this.#ctx.report('the sandboxes of a cancelled build could not be killed yet', {
        jobId,
        error: thrown,
      }),
    );
    return { job_id: jobId, status: 'cancelled', message: 'Build cancelled' };
  }

  /** The sandbox of the preview; null while there is none. */
  async previewSandbox(owner: Owner, id: string): Promise<SandboxId | null> {
    return (await getJob(this.#ctx.db, owner, id)).sandboxId;
  }

  /** Concurrent calls join: all callers get the answer of the same attempt (R46). */
  resume(owner: Owner, id: string): Promise<BuildResumed> {
    return this.#mutex.run(mutexKey(owner, id), 'resume', async () => {
      const job = await getJob(this.#ctx.db, owner, id);
      const { sandboxId, port } = previewOf(job);
      return resumeBuild(this.#ctx, job, { sandboxId, port }, this.#stopping.signal);
    });
  }

  snapshot(owner: Owner, id: string): Promise<BuildSnapshot> {
    return this.#mutex.run(mutexKey(owner, id), 'snapshot', async () => {
      const job = await getJob(this.#ctx.db, owner, id);
      if (job.status !== 'ready') {
        throw new NotReady(`Cannot snapshot job in state '${job.status}'. Job must be READY.`);
      }
      const { sandboxId } = previewOf(job);
      const snapshot = await pauseOnRequest(this.#ctx, job, sandboxId, this.#stopping.signal);
      return { job_id: job.id, paused: true, snapshot };
    });
  }

  /** A new build from the goal and the files of a build that is over, which stays unchanged (R48). */
  async rebuild(owner: Owner, id: string): Promise<BuildStarted> {
    const before = await getJob(this.#ctx.db, owner, id);
    if (!isBuildOver(before.status)) {
      throw new TorporError(
        'conflict',
        `The job is ${before.status}; only a build that is over can be rebuilt.`,
      );
    }
    const job = await submit(this.#ctx, {
      ...owner,
      projectId: before.projectId,
      goal: before.goal,
      runner: before.runner,
      port: before.wantedPort ?? undefined,
      previous: { id: before.id, kind: 'rebuild' },
    });
    const status = job.status === 'scheduled' ? 'scheduled' : 'queued';
    return { job_id: job.id, status, build_version: await this.#predictedVersion(job) };
  }

  async previewCheck(owner: Owner, id: string): Promise<PreviewCheck> {
    return checkEmbedding(this.#ctx, await getJob(this.#ctx.db, owner, id), this.#stopping.signal);
  }

  /** Returns whether this was the first view. */
  async previewViewed(owner: Owner, id: string): Promise<boolean> {
    const { id: jobId, status } = await getJob(this.#ctx.db, owner, id);
    if (status !== 'ready') throw new NotReady(`Cannot view job in state '${status}'. Job must be READY.`);
    return this.#ctx.db.transaction(async (tx) => {
      const job = await lockJob(tx, jobId);
      if (job === undefined || job.viewedAt !== null) return false;
      await changeJob(tx, job, { viewedAt: this.#ctx.clock.now() });
      return true;
    });
  }

  async files(owner: Owner, id: string): Promise<GeneratedFile[]> {
    return readFiles(this.#ctx.db, requireFiles(await getJob(this.#ctx.db, owner, id)).id);
  }

  /** The documentation of a build, from the texts of the application and from the build itself. */
  async docs(owner: Owner, id: string): Promise<BuildDocs> {
    return docsOf(this.#ctx.db, requireFiles(await getJob(this.#ctx.db, owner, id)));
  }

  /** Grants more iterations. Refused while some are left, and when three times the plan's number are used. */
  async confirm(owner: Owner, id: string): Promise<IterationsGranted> {
    const { id: jobId } = await getJob(this.#ctx.db, owner, id);
    const { iterations } = planOf(this.#ctx.settings, owner.user);
    const granted = await this.#ctx.db.transaction(async (tx) => {
      await lockAdmission(tx);
      const job = await lockRoot(tx, jobId);
      if (job === undefined || job.iterationsUsed < iterationsAllowed(this.#ctx, job)) {
        throw new TorporError('invalid_request', 'The job is not awaiting a confirmation.');
      }
      if (job.iterationsUsed >= 3 * iterations) {
        throw new TorporError('invalid_request', `The hard cap of ${3 * iterations} iterations is reached.`);
      }
      return changeJob(tx, job, { iterationsGranted: job.iterationsGranted + iterations });
    });
    return { job_id: granted.id, iterations_granted: iterations, usage: await usageOf(this.#ctx, granted) };
  }

  async logPage(
    owner: Owner,
    id: string,
    page: { beforeId?: number | undefined; limit: number },
  ): Promise<BuildLogPage> {
    return readLogs(this.#ctx.db, requireLogs(await getJob(this.#ctx.db, owner, id)).id, page);
  }

  /** The event of the current state, and whether no more events will follow. */
  async lastStep(owner: Owner, id: string): Promise<NumberedEvent & { readonly settled: boolean }> {
    const { db, clock, settings } = this.#ctx;
    const job = await getJob(db, owner, id);
    const settled = isSettled(job, clock.now(), settings.followAfterReadyMs);
    return { ...(await lastStage(db, job.id)), settled };
  }

  /** Every event after the given one, until the build is over or settled. */
  async followEvents(
    owner: Owner,
    id: string,
    following: FollowOptions,
    signal: AbortSignal,
  ): Promise<AsyncGenerator<NumberedEvent>> {
    const job = await getJob(this.#ctx.db, owner, id);
    return followEvents(this.#ctx, this.#events, job.id, following, this.#orStopping(signal));
  }

  /** Every line from now on, or after the given one. */
  async followLogs(
    owner: Owner,
    id: string,
    signal: AbortSignal,
    after?: number,
  ): Promise<AsyncGenerator<LogItem>> {
    const job = requireLogs(await getJob(this.#ctx.db, owner, id));
    return followLogs(this.#ctx.db, this.#logs, job.id, this.#orStopping(signal), after);
  }

  #orStopping(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.#stopping.signal]);
  }

  async #accept(owner: Owner, request: BuildRequest): Promise<BuildJob> {
    const { project_id: projectId, goal, port, previous_job_id: previousId } = request;
    const runner = request.runner ?? this.#options.defaultRunner;
    if (runner !== 'none' && !this.#ctx.runners.has(runner)) {
      throw new TorporError(
        'capability_unsupported',
        `This server has no runner "${runner}". Its operator configures runners; docs/builds.md says how.`,
      );
    }
    const submission: BuildSubmission = { ...owner, projectId, goal, runner, port };
    if (previousId === undefined) return submit(this.#ctx, submission);
    const before = await getJob(this.#ctx.db, owner, previousId);
    if (before.status !== 'ready' || before.projectId !== projectId) {
      throw new TorporError('conflict', 'An iteration needs a ready build of the same project.');
    }
    return submit(this.#ctx, { ...submission, previous: { id: before.id, kind: 'iteration' } });
  }

  #predictedVersion({ org, projectId }: BuildJob): Promise<string> {
    return predictVersion(this.#ctx.db, org, projectId);
  }

  async #view(job: BuildJob, estimated: boolean): Promise<JobView> {
    const position = await positionOf(this.#ctx.db, job);
    return {
      job_id: job.id,
      status: job.status,
      position,
      ...(estimated ? { estimated_wait: await estimateWait(this.#ctx, job, position) } : {}),
      usage: await usageOf(this.#ctx, job),
      message: job.statusMessage,
    };
  }

  async #runRetention(): Promise<void> {
    const { clock, settings } = this.#ctx;
    const now = clock.now();
    if (now < this.#retention.dueAt) return;
    this.#retention = { ...this.#retention, dueAt: now + settings.retentionEveryMs };
    this.#retention = { ...this.#retention, after: await retentionRound(this.#ctx, this.#retention.after) };
  }

  async #runUpkeepLoop(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      await this.upkeep();
      await this.#ctx.clock.sleep(this.#ctx.settings.upkeepMs, signal).catch(() => {});
    }
  }
}

/** The job is not in the state that the call needs. The API answers this with a status of its own. */
export class NotReady extends TorporError {
  constructor(message: string) {
    super('conflict', message);
  }
}

/** Includes the owner: a caller who names another owner's job must not join its calls; the answer is "not found". */
function mutexKey({ org, user }: Owner, id: string): string {
  return JSON.stringify([org, user, id]);
}

function previewOf({ sandboxId, port }: BuildJob): { readonly sandboxId: SandboxId; readonly port: number } {
  if (sandboxId === null || port === null) {
    throw new TorporError('not_found', 'No sandbox_id associated with this job');
  }
  return { sandboxId, port };
}
