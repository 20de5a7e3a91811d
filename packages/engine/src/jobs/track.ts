/** Jobs that start and end while their sandbox runs. */
import { isId, type JobId, type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { appendEvents } from '../ledger/transition.ts';
import type { Transaction } from '../ports/database.ts';
import type { ProcessEnd } from '../ports/processes.ts';
import { lockSandbox, noSuchSandbox, type Sandbox } from '../sandbox.ts';
import { applyChange, type JobChange, jobEvent, startedJob } from './change.ts';
import { deleteOldJobs, findJob, saveJobs, type TrackedJob } from './job.ts';

/** A process that a caller has started in the background of a running sandbox. */
export interface StartedProcess {
  /** Also the tag by which the agent knows the process. */
  readonly id: JobId;
  readonly sandboxId: SandboxId;
  /** The start of the sandbox in which the process was started. */
  readonly generation: number;
  readonly pid: number;
  readonly command: string;
  readonly cwd: string | null;
}

/**
 * Makes a process a job. Throws `transitioning` when the sandbox was paused, rolled back or ended since the process was
 * started. If the process survived in the sandbox's memory, the reconciler finds it there later.
 */
export async function trackProcess(ctx: Context, org: string, process: StartedProcess): Promise<TrackedJob> {
  return ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, process.sandboxId);
    if (sandbox.org !== org) throw noSuchSandbox(process.sandboxId);
    // The reconciler may have found the process before the caller recorded it.
    const known = await findJob(tx, process.id);
    if (known?.sandboxId === sandbox.id) return known;
    if (!isRunOf(sandbox, process.generation)) throw sandboxChanged(sandbox);
    const { id, pid, command, cwd } = process;
    return insert(ctx, tx, sandbox, { id, tag: id, pid, command, cwd });
  });
}

/**
 * Makes a job of a process that has the tag of a job but no row: its server died before it wrote the row, or the process
 * was copied with the memory of another sandbox.
 */
export async function adoptProcess(
  ctx: Context,
  seen: Pick<Sandbox, 'id' | 'generation'>,
  process: Pick<TrackedJob, 'tag' | 'command' | 'cwd'> & { readonly pid: number },
): Promise<TrackedJob | undefined> {
  const { tag } = process;
  if (!isId('job', tag)) return undefined;
  return ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, seen.id);
    if (!isRunOf(sandbox, seen.generation)) return undefined;
    const [known] = await tx.query('SELECT id FROM jobs WHERE sandbox_id = $1 AND tag = $2', [seen.id, tag]);
    if (known !== undefined) return undefined;
    const other = await findJob(tx, tag);
    const id = other === undefined ? tag : ctx.ids.next('job');
    const forkedFrom = other?.org === sandbox.org ? other.id : null;
    return insert(ctx, tx, sandbox, { ...process, id, forkedFrom });
  });
}

/** `end` is null when the agent does not know how the process ended. A job that has changed since it was read stays as it is. */
export async function recordEnd(
  ctx: Context,
  seen: TrackedJob,
  end: ProcessEnd | null,
): Promise<TrackedJob | undefined> {
  const change: JobChange = end === null ? { is: 'lost', reason: 'not_found' } : { is: 'completed', ...end };
  return ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, seen.sandboxId);
    const job = await findJob(tx, seen.id);
    const isSame = job?.state === 'running' && job.generation === seen.generation;
    if (job === undefined || !isSame || job.startedAt !== seen.startedAt) return undefined;
    const after = applyChange(job, change, ctx.clock.now());
    await saveJobs(tx, [after]);
    await appendEvents(tx, sandbox, [jobEvent(ctx, after, change.is, null)]);
    return after;
  });
}

async function insert(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  about: Pick<TrackedJob, 'id' | 'tag' | 'pid' | 'command' | 'cwd'> & Partial<Pick<TrackedJob, 'forkedFrom'>>,
): Promise<TrackedJob> {
  const { org, generation } = sandbox;
  const at = { sandboxId: sandbox.id, generation, now: ctx.clock.now() };
  const job = startedJob({ ...about, org, kind: 'process', name: null }, at);
  await saveJobs(tx, [job]);
  await deleteOldJobs(tx, sandbox.id);
  await appendEvents(tx, sandbox, [jobEvent(ctx, job, 'created', null)]);
  return job;
}

/** A sandbox that is being paused still runs: its checkpoint will hold the process too. */
function isRunOf(sandbox: Sandbox, generation: number): boolean {
  return (sandbox.state === 'running' || sandbox.state === 'pausing') && sandbox.generation === generation;
}

function sandboxChanged(sandbox: Sandbox): TorporError {
  return new TorporError('transitioning', 'The sandbox was paused, rolled back or ended meanwhile.', {
    sandboxId: sandbox.id,
    retryable: false,
    hint: 'The command may have run, wholly or in part: check before you run it again.',
    details: { state: sandbox.state, dispatched: true },
  });
}
