/**
 * Builds: what a face may ask for, and the worker behind it. Start reading at `pipeline/generate.ts`, then
 * `jobs/transition.ts` (the one write of state) and `jobs/admission.ts` (who may work now).
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
import { lockGate } from './jobs/admission.ts';
import { cancelJob } from './jobs/cancel.ts';
import { type Following, followEvents, isSettled, lastStep, type NumberedEvent } from './jobs/events.ts';
import { type BuildJob, getJob, listJobs, lockJob, type Owner } from './jobs/job.ts';
import { requireFiles, requireLogs, retentionRound } from './jobs/retention.ts';
import { lockRoot } from './jobs/root.ts';
import { readFiles } from './jobs/stored-files.ts';
import { type BuildOrder, submit } from './jobs/submit.ts';
import { changeJob } from './jobs/transition.ts';
import { admitWaiting, failStale, promoteScheduled } from './jobs/upkeep.ts';
import { estimateWait, iterationsAllowed, positionOf, usageOf } from './jobs/usage.ts';
import { predictVersion } from './jobs/version.ts';
import { followLogs, type LogItem, readLogs } from './logs/read-logs.ts';
import { endSandboxes, tidyRound } from './pipeline/tidy.ts';
import { startBuildWorker } from './pipeline/worker.ts';
import { planOf } from './plans.ts';
import { checkEmbedding } from './preview/embedding.ts';
import { resumeBuild } from './preview/resume.ts';
import { snapshotBuild } from './preview/snapshot.ts';
import { statusOf } from './preview/status.ts';
import { Turns } from './preview/turns.ts';
import type { GeneratedFile } from './runners/generated-files.ts';

export interface BuildsOptions {
  /** The runner of requests that name none. */
  readonly defaultRunner: RunnerName;
}

export class Builds {
  private readonly ctx: BuildContext;
  private readonly options: BuildsOptions;
  private readonly events: NotificationSubscription;
  private readonly logs: NotificationSubscription;
  private readonly turns = new Turns();
  private readonly stopping = new AbortController();
  private worker: Worker | undefined;
  private rounds: Promise<void> = Promise.resolve();
  /** When old files and logs are looked for next, and after which build. */
  private retention = { dueAt: 0, after: 0 };

  constructor(ctx: BuildContext, options: BuildsOptions) {
    this.ctx = ctx;
    this.options = options;
    const { clock, settings } = ctx;
    this.events = new NotificationSubscription(clock, settings.noticeAtLeastEveryMs, EVENT_CHANNEL);
    this.logs = new NotificationSubscription(clock, settings.noticeAtLeastEveryMs, LOG_CHANNEL);
  }

  async start(): Promise<void> {
    await this.events.start(this.ctx.db);
    await this.logs.start(this.ctx.db);
    this.worker = await startBuildWorker(this.ctx);
    this.rounds = this.keepRounds();
  }

  /** Hands back what it works on, within its bound. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await this.worker?.stop();
    await this.rounds;
    await this.events.stop();
    await this.logs.stop();
  }

  /** One round of what no caller asks for. */
  async upkeep(): Promise<void> {
    const retain = () => this.retain();
    for (const round of [promoteScheduled, admitWaiting, failStale, tidyRound, retain]) {
      await round(this.ctx).catch((thrown: unknown) =>
        this.ctx.report('a round of the builds failed', { error: thrown }),
      );
    }
  }

  async begin(owner: Owner, request: BuildRequest): Promise<BuildStarted> {
    const job = await this.accept(owner, request);
    const status = job.status === 'scheduled' ? 'scheduled' : 'queued';
    return { job_id: job.id, status, build_version: await this.predicted(job) };
  }

  async enqueue(owner: Owner, request: BuildRequest): Promise<JobView> {
    const job = await this.accept(owner, request);
    return this.view(job, true);
  }

  async job(owner: Owner, id: string): Promise<JobView> {
    return this.view(await getJob(this.ctx.db, owner, id), false);
  }

  async status(owner: Owner, id: string): Promise<BuildStatus> {
    return statusOf(this.ctx, await getJob(this.ctx.db, owner, id));
  }

  async list(owner: Owner, before: number, limit: number) {
    const found = await listJobs(this.ctx.db, owner, before, limit + 1);
    const { items, nextCursor } = pageOf(found, limit, ({ number }) => String(number));
    return { items: await Promise.all(items.map((job) => statusOf(this.ctx, job))), nextCursor };
  }

  async cancel(owner: Owner, id: string): Promise<BuildCancelled> {
    const { id: jobId } = await getJob(this.ctx.db, owner, id);
    const job = await cancelJob(this.ctx, jobId);
    await this.ctx.pass('build.cancelled');
    await endSandboxes(this.ctx, job).catch((thrown: unknown) =>
      this.ctx.report('the sandboxes of a cancelled build are left for later', { jobId, error: thrown }),
    );
    return { job_id: jobId, status: 'cancelled', message: 'Build cancelled' };
  }

  /** Any number of callers at once are one: they get the answer of the same attempt (R46). */
  resume(owner: Owner, id: string): Promise<BuildResumed> {
    return this.turns.join(turnOf(owner, id), 'resume', async () => {
      const job = await getJob(this.ctx.db, owner, id);
      const { sandboxId, port } = previewOf(job);
      return resumeBuild(this.ctx, job, { sandboxId, port }, this.stopping.signal);
    });
  }

  snapshot(owner: Owner, id: string): Promise<BuildSnapshot> {
    return this.turns.join(turnOf(owner, id), 'snapshot', async () => {
      const job = await getJob(this.ctx.db, owner, id);
      if (job.status !== 'ready') {
        throw new NotReady(`Cannot snapshot job in state '${job.status}'. Job must be READY.`);
      }
      const { sandboxId } = previewOf(job);
      const snapshot = await snapshotBuild(this.ctx, job, sandboxId, this.stopping.signal);
      return { job_id: job.id, paused: true, snapshot };
    });
  }

  /** A new build from the goal and the files of one that is over; that one stays as it is (R48). */
  async rebuild(owner: Owner, id: string): Promise<BuildStarted> {
    const before = await getJob(this.ctx.db, owner, id);
    if (!isBuildOver(before.status)) {
      throw new TorporError('conflict', `The job is ${before.status}; only what is over can be built again.`);
    }
    const job = await submit(this.ctx, {
      ...owner,
      projectId: before.projectId,
      goal: before.goal,
      runner: before.runner,
      port: before.wantedPort ?? undefined,
      previous: { id: before.id, kind: 'rebuild' },
    });
    const status = job.status === 'scheduled' ? 'scheduled' : 'queued';
    return { job_id: job.id, status, build_version: await this.predicted(job) };
  }

  async previewCheck(owner: Owner, id: string): Promise<PreviewCheck> {
    return checkEmbedding(this.ctx, await getJob(this.ctx.db, owner, id), this.stopping.signal);
  }

  /** Whether this was the first time. */
  async previewViewed(owner: Owner, id: string): Promise<boolean> {
    const { id: jobId, status } = await getJob(this.ctx.db, owner, id);
    if (status !== 'ready') throw new NotReady(`Cannot view job in state '${status}'. Job must be READY.`);
    return this.ctx.db.transaction(async (tx) => {
      const job = await lockJob(tx, jobId);
      if (job === undefined || job.viewedAt !== null) return false;
      await changeJob(tx, job, { viewedAt: this.ctx.clock.now() });
      return true;
    });
  }

  async files(owner: Owner, id: string): Promise<GeneratedFile[]> {
    return readFiles(this.ctx.db, requireFiles(await getJob(this.ctx.db, owner, id)).id);
  }

  /** What there is to read about it: what the application says of itself, and what its build shows. */
  async docs(owner: Owner, id: string): Promise<BuildDocs> {
    return docsOf(this.ctx.db, requireFiles(await getJob(this.ctx.db, owner, id)));
  }

  /** Lets a build have more iterations; refused when it does not ask for any, or has had three times its plan's. */
  async confirm(owner: Owner, id: string): Promise<IterationsGranted> {
    const { id: jobId } = await getJob(this.ctx.db, owner, id);
    const { iterations } = planOf(this.ctx.settings, owner.user);
    const granted = await this.ctx.db.transaction(async (tx) => {
      await lockGate(tx);
      const job = await lockRoot(tx, jobId);
      if (job === undefined || job.iterationsUsed < iterationsAllowed(this.ctx, job)) {
        throw new TorporError('invalid_request', 'The job is not awaiting a confirmation.');
      }
      if (job.iterationsUsed >= 3 * iterations) {
        throw new TorporError('invalid_request', `The hard cap of ${3 * iterations} iterations is reached.`);
      }
      return changeJob(tx, job, { iterationsGranted: job.iterationsGranted + iterations });
    });
    return { job_id: granted.id, iterations_granted: iterations, usage: await usageOf(this.ctx, granted) };
  }

  async logPage(
    owner: Owner,
    id: string,
    page: { beforeId?: number | undefined; limit: number },
  ): Promise<BuildLogPage> {
    return readLogs(this.ctx.db, requireLogs(await getJob(this.ctx.db, owner, id)).id, page);
  }

  /** The event of the state that it is in, and whether more events are to be waited for. */
  async lastStep(owner: Owner, id: string): Promise<NumberedEvent & { readonly settled: boolean }> {
    const { db, clock, settings } = this.ctx;
    const job = await getJob(db, owner, id);
    const settled = isSettled(job, clock.now(), settings.followAfterReadyMs);
    return { ...(await lastStep(db, job.id)), settled };
  }

  /** Every event after the given one, until the build is over or settled. */
  async followEvents(
    owner: Owner,
    id: string,
    following: Following,
    signal: AbortSignal,
  ): Promise<AsyncGenerator<NumberedEvent>> {
    const job = await getJob(this.ctx.db, owner, id);
    return followEvents(this.ctx, this.events, job.id, following, this.until(signal));
  }

  /** Every line from now on, or after the given one. */
  async followLogs(
    owner: Owner,
    id: string,
    signal: AbortSignal,
    after?: number,
  ): Promise<AsyncGenerator<LogItem>> {
    const job = requireLogs(await getJob(this.ctx.db, owner, id));
    return followLogs(this.ctx.db, this.logs, job.id, this.until(signal), after);
  }

  private until(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, this.stopping.signal]);
  }

  private async accept(owner: Owner, request: BuildRequest): Promise<BuildJob> {
    const { project_id: projectId, goal, port, previous_job_id: previousId } = request;
    const runner = request.runner ?? this.options.defaultRunner;
    if (runner !== 'none' && !this.ctx.runners.has(runner)) {
      throw new TorporError(
        'capability_unsupported',
        `This server has no runner "${runner}". Its operator configures runners; docs/builds.md says how.`,
      );
    }
    const order: BuildOrder = { ...owner, projectId, goal, runner, port };
    if (previousId === undefined) return submit(this.ctx, order);
    const before = await getJob(this.ctx.db, owner, previousId);
    if (before.status !== 'ready' || before.projectId !== projectId) {
      throw new TorporError('conflict', 'Only a ready build of the same project can be gone on from.');
    }
    return submit(this.ctx, { ...order, previous: { id: before.id, kind: 'iteration' } });
  }

  private predicted({ org, projectId }: BuildJob): Promise<string> {
    return predictVersion(this.ctx.db, org, projectId);
  }

  private async view(job: BuildJob, estimated: boolean): Promise<JobView> {
    const position = await positionOf(this.ctx.db, job);
    return {
      job_id: job.id,
      status: job.status,
      position,
      ...(estimated ? { estimated_wait: await estimateWait(this.ctx, job, position) } : {}),
      usage: await usageOf(this.ctx, job),
      message: job.statusMessage,
    };
  }

  private async retain(): Promise<void> {
    const { clock, settings } = this.ctx;
    const now = clock.now();
    if (now < this.retention.dueAt) return;
    this.retention = { ...this.retention, dueAt: now + settings.retentionEveryMs };
    this.retention = { ...this.retention, after: await retentionRound(this.ctx, this.retention.after) };
  }

  private async keepRounds(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await this.upkeep();
      await this.ctx.clock.sleep(this.ctx.settings.upkeepMs, signal).catch(() => {});
    }
  }
}

/** The job is not far enough for what was asked: a refusal of its own on this face. */
export class NotReady extends TorporError {
  constructor(message: string) {
    super('conflict', message);
  }
}

/** A job has one owner. Whoever else names it has a turn of his own, in which he is told that there is no such job. */
function turnOf({ org, user }: Owner, id: string): string {
  return JSON.stringify([org, user, id]);
}

function previewOf({ sandboxId, port }: BuildJob): { readonly sandboxId: SandboxId; readonly port: number } {
  if (sandboxId === null || port === null) {
    throw new TorporError('not_found', 'No sandbox_id associated with this job');
  }
  return { sandboxId, port };
}
