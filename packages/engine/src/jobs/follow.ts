/**
 * What becomes of a sandbox's jobs when its state changes. Each function is part of the transaction that changes the
 * state: it writes the jobs and returns the lines to append behind the sandbox's own.
 */
import { type CheckpointId, type JobLoss, type OperationId, serviceTag } from '@torpor/protocol';
import type { Checkpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Line } from '../ledger/append.ts';
import { type Operation, requestedCheckpoint } from '../operations/operation.ts';
import type { Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { begun, changed, type Happening, lineOf } from './change.ts';
import {
  captureJobs,
  jobsInCheckpoint,
  jobsToStart,
  loseLive,
  saveJobs,
  suspendLive,
  type TrackedJob,
} from './job.ts';

/** A checkpoint is sealed: with memory it holds the jobs that run. Unless the sandbox goes on, they stop. */
export async function jobsAtSeal(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  sealed: { readonly checkpointId: CheckpointId; readonly memory: boolean; readonly goesOn: boolean },
  operationId: OperationId,
): Promise<Line[]> {
  if (sealed.memory) await captureJobs(tx, sealed.checkpointId, sandbox.id);
  if (sealed.goesOn) return [];
  if (!sealed.memory) return jobsAtEnd(ctx, tx, sandbox, 'files_only_pause', operationId);
  return lines(ctx, await suspendLive(tx, sandbox.id), 'suspended', operationId);
}

/** Nothing of the sandbox runs any more. */
export async function jobsAtEnd(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  reason: JobLoss,
  operationId: OperationId,
): Promise<Line[]> {
  return lines(ctx, await loseLive(tx, sandbox.id, reason, ctx.clock.now()), 'lost', operationId);
}

/** The sandbox runs again, or for the first time. */
export async function jobsAtStart(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  from: { readonly checkpoint: Checkpoint; readonly memory: boolean },
  operation: Operation,
): Promise<Line[]> {
  const { checkpoint, memory } = from;
  const isFirst = sandbox.state === 'creating';
  const own = isFirst
    ? { jobs: [], captured: new Set<string>() }
    : await jobsToStart(tx, sandbox.id, checkpoint.id);
  const isForeign = memory && checkpoint.sandboxId !== null && checkpoint.sandboxId !== sandbox.id;
  const changes = afterStart({
    sandbox,
    jobs: own.jobs,
    captured: memory ? own.captured : new Set(),
    foreign: isForeign ? await jobsInCheckpoint(tx, checkpoint.id) : [],
    loss:
      operation.kind === 'rollback' || requestedCheckpoint(operation) !== undefined ? 'rollback' : 'fallback',
    now: ctx.clock.now(),
    newId: () => ctx.ids.next('job'),
  });
  await saveJobs(
    tx,
    changes.map(({ job }) => job),
  );
  return changes.map(({ job, what }) => lineOf(ctx, job, what, operation.id));
}

interface StartedWith {
  readonly sandbox: Pick<Sandbox, 'id' | 'org' | 'generation' | 'config'>;
  /** The sandbox's own jobs that a start may change. */
  readonly jobs: readonly TrackedJob[];
  /** Tags of the processes that came back with the memory. */
  readonly captured: ReadonlySet<string>;
  /** Jobs of another sandbox whose processes came with its memory. */
  readonly foreign: readonly TrackedJob[];
  /** Why a job that did not come back is lost. */
  readonly loss: JobLoss;
  readonly now: number;
  readonly newId: () => TrackedJob['id'];
}

interface Changed {
  readonly job: TrackedJob;
  readonly what: Happening['is'] | 'created';
}

/** Declared services run after every start; other processes run only when they came back with the memory. */
export function afterStart(started: StartedWith): Changed[] {
  const { sandbox, jobs, captured, foreign, loss, now, newId } = started;
  const { org, generation, config } = sandbox;
  const at = { sandboxId: sandbox.id, generation, now };
  const changes: Changed[] = [];
  const change = (job: TrackedJob, happening: Happening) =>
    changes.push({ job: changed(job, happening, now), what: happening.is });
  const create = (about: Parameters<typeof begun>[0]) =>
    changes.push({ job: begun(about, at), what: 'created' });
  const declared = new Set(config.services.map(({ name }) => serviceTag(name)));
  const isBack = new Set([...captured, ...foreign.map(({ tag }) => tag)]);
  for (const job of jobs) {
    const isRunning = job.state === 'running';
    if (isBack.has(job.tag)) {
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

/** In the order in which they were created, whatever order the database returned them in. */
function lines(
  ctx: Context,
  jobs: readonly TrackedJob[],
  what: Happening['is'],
  operationId: OperationId,
): Line[] {
  const ordered = jobs.toSorted((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
  return ordered.map((job) => lineOf(ctx, job, what, operationId));
}
