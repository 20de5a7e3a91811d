/**
 * What happens to a sandbox's jobs when its state changes. Each function is part of the transaction that changes the
 * state: it writes the jobs and returns the events to append after the sandbox's own.
 */
import { type CheckpointId, type JobLoss, type OperationId, serviceTag } from '@torpor/protocol';
import type { Checkpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { NewEvent } from '../ledger/transition.ts';
import { type Operation, requestedCheckpoint } from '../operations/operation.ts';
import type { Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { applyChange, type JobChange, jobEvent, startedJob } from './change.ts';
import {
  jobsInCheckpoint,
  jobsToStart,
  markLiveLost,
  markRunningSuspended,
  recordJobsInCheckpoint,
  saveJobs,
  type TrackedJob,
} from './job.ts';

/** A checkpoint is sealed. With memory, the checkpoint holds the running jobs. They stop unless the sandbox runs on. */
export async function jobsAtSeal(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  sealed: {
    readonly checkpointId: CheckpointId;
    readonly memory: boolean;
    readonly continuesRunning: boolean;
  },
  operationId: OperationId,
): Promise<NewEvent[]> {
  if (sealed.memory) await recordJobsInCheckpoint(tx, sealed.checkpointId, sandbox.id);
  if (sealed.continuesRunning) return [];
  if (!sealed.memory) return jobsAtEnd(ctx, tx, sandbox, 'files_only_pause', operationId);
  return jobEvents(ctx, await markRunningSuspended(tx, sandbox.id), 'suspended', operationId);
}

/** No process of the sandbox runs any more. */
export async function jobsAtEnd(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  reason: JobLoss,
  operationId: OperationId | null,
): Promise<NewEvent[]> {
  return jobEvents(ctx, await markLiveLost(tx, sandbox.id, reason, ctx.clock.now()), 'lost', operationId);
}

/** The sandbox has been started: the first time, or again. */
export async function jobsAtStart(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  from: {
    readonly checkpoint: Checkpoint;
    readonly memory: boolean;
    /** Names of services that have ended with exit code 0 in the restored memory. */
    readonly succeeded: readonly string[];
  },
  operation: Operation,
): Promise<NewEvent[]> {
  const { checkpoint, memory, succeeded } = from;
  const isFirst = sandbox.state === 'creating';
  const own = isFirst
    ? { jobs: [], captured: new Set<string>() }
    : await jobsToStart(tx, sandbox.id, checkpoint.id);
  const isForeign = memory && checkpoint.sandboxId !== null && checkpoint.sandboxId !== sandbox.id;
  const changes = changesAtStart({
    sandbox,
    jobs: own.jobs,
    captured: memory ? own.captured : new Set(),
    foreign: isForeign ? await jobsInCheckpoint(tx, checkpoint.id) : [],
    succeeded: new Set(succeeded.map(serviceTag)),
    loss:
      operation.kind === 'rollback' || requestedCheckpoint(operation) !== undefined ? 'rollback' : 'fallback',
    now: ctx.clock.now(),
    newId: () => ctx.ids.next('job'),
  });
  await saveJobs(
    tx,
    changes.map(({ job }) => job),
  );
  return changes.map(({ job, what }) => jobEvent(ctx, job, what, operation.id));
}

interface StartFacts {
  readonly sandbox: Pick<Sandbox, 'id' | 'org' | 'generation' | 'config'>;
  /** The sandbox's own jobs that a start may change. */
  readonly jobs: readonly TrackedJob[];
  /** Tags of the processes that were restored with the memory. */
  readonly captured: ReadonlySet<string>;
  /** Jobs of another sandbox whose processes were restored with its memory. */
  readonly foreign: readonly TrackedJob[];
  /** Tags of services that have ended with exit code 0 in the restored memory, and were not started again. */
  readonly succeeded: ReadonlySet<string>;
  /** Why a job whose process was not restored is lost. */
  readonly loss: JobLoss;
  readonly now: number;
  readonly newId: () => TrackedJob['id'];
}

interface ChangedJob {
  readonly job: TrackedJob;
  readonly what: JobChange['is'] | 'created';
}

/**
 * Declared services run after every start, unless they had succeeded in the restored memory; other processes run only when
 * they were restored with the memory. A service that has succeeded and whose job is not recorded as such counts as restored:
 * the watch of jobs then records its end.
 */
export function changesAtStart(started: StartFacts): ChangedJob[] {
  const { sandbox, jobs, captured, foreign, succeeded, loss, now, newId } = started;
  const { org, generation, config } = sandbox;
  const at = { sandboxId: sandbox.id, generation, now };
  const changes: ChangedJob[] = [];
  const change = (job: TrackedJob, jobChange: JobChange) =>
    changes.push({ job: applyChange(job, jobChange, now), what: jobChange.is });
  const create = (about: Parameters<typeof startedJob>[0]) =>
    changes.push({ job: startedJob(about, at), what: 'created' });
  const declared = new Set(config.services.map(({ name }) => serviceTag(name)));
  const restored = new Set([...captured, ...foreign.map(({ tag }) => tag), ...succeeded]);
  for (const job of jobs) {
    const isRunning = job.state === 'running';
    if (succeeded.has(job.tag) && job.exitCode === 0) continue;
    if (restored.has(job.tag)) {
      if (!isRunning) change(job, { is: 'resumed' });
    } else if (declared.has(job.tag)) change(job, { is: 'restarted', generation });
    else if (isRunning || job.state === 'suspended') change(job, { is: 'lost', reason: loss });
  }
  const known = new Set(jobs.map(({ tag }) => tag));
  for (const { name, command, cwd = null, jobId } of config.services) {
    const tag = serviceTag(name);
    if (!known.has(tag)) create({ id: jobId, org, kind: 'service', name, tag, command, cwd });
  }
  for (const { id, kind, name, tag, command, cwd, pid } of foreign) {
    if (kind !== 'process' || known.has(tag)) continue;
    create({ id: newId(), org, kind, name, tag, command, cwd, pid, forkedFrom: id });
  }
  return changes;
}

/** Sorted by creation: the database returns updated rows in any order. */
function jobEvents(
  ctx: Context,
  jobs: readonly TrackedJob[],
  what: JobChange['is'],
  operationId: OperationId | null,
): NewEvent[] {
  const ordered = jobs.toSorted((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
  return ordered.map((job) => jobEvent(ctx, job, what, operationId));
}
