/**
 * One state transition of a build: the state, the fields that change with it, and the events (the completed stage and
 * the started one), in one transaction.
 *
 * The row is locked before it is read. So exactly one of several concurrent attempts on one edge finds the state that
 * the edge starts from (R3). Nothing else writes `status`.
 */
import type { SqlValue, Transaction } from '@torpor/engine';
import {
  type BuildEvent,
  type BuildState,
  completesStage,
  isBuildOver,
  type JobId,
  mayFollow,
  STAGE_LABELS,
} from '@torpor/protocol';
import { EVENT_CHANNEL, LOG_CHANNEL } from '../context.ts';
import { insertEvent } from './events.ts';
import { type BuildJob, lockJob } from './job.ts';

/** The fields that may change beside the state. */
export type JobChange = Partial<
  Pick<
    BuildJob,
    | 'sandboxId'
    | 'port'
    | 'previewUrl'
    | 'buildVersion'
    | 'workspacePath'
    | 'sandboxPaused'
    | 'pauseSettled'
    | 'errorMessage'
    | 'debugId'
    | 'tidied'
    | 'admittedAt'
    | 'notBefore'
    | 'iterationsUsed'
    | 'iterationsGranted'
    | 'viewedAt'
    | 'filesExpiredAt'
    | 'logsExpiredAt'
  >
>;

export interface JobStep {
  readonly at: number;
  /** The label of the state by default. */
  readonly message?: string;
  readonly change?: JobChange;
}

/** Returns the changed job. Returns undefined and writes nothing when there is no such job or no such edge. */
export async function transition(
  tx: Transaction,
  id: JobId,
  to: BuildState,
  { at, message = STAGE_LABELS[to], change = {} }: JobStep,
): Promise<BuildJob | undefined> {
  const job = await lockJob(tx, id);
  if (job === undefined || !mayFollow(job.status, to)) return undefined;
  const left = completesStage(job.status, to) ? { ...job, lastEvent: job.lastEvent + 1 } : job;
  const after: BuildJob = {
    ...job,
    ...change,
    status: to,
    statusMessage: message,
    lastEvent: left.lastEvent + 1,
    updatedAt: at,
    ...(to === 'starting' ? { startedAt: at } : {}),
    ...(isBuildOver(to) ? { completedAt: at } : {}),
  };
  await writeJob(tx, job, after);
  // Readers of the log wait for the end of the build too.
  if (isBuildOver(to)) tx.notify(LOG_CHANNEL);
  if (left !== job) await insertEvent(tx, left, 'build.stage.completed', STAGE_LABELS[left.status], at);
  await insertEvent(tx, after, 'build.stage.started', message, at);
  return after;
}

/** Changes fields without an event. The caller holds the row's lock. */
export async function changeJob(tx: Transaction, job: BuildJob, change: JobChange): Promise<BuildJob> {
  const after = { ...job, ...change };
  await writeJob(tx, job, after);
  return after;
}

/** Writes an event and changes fields without a state transition; undefined when there is no such job. */
export async function recordEvent(
  tx: Transaction,
  id: JobId,
  type: Exclude<BuildEvent['type'], `build.stage.${string}`>,
  { at, message = '', change = {} }: JobStep,
): Promise<BuildJob | undefined> {
  const job = await lockJob(tx, id);
  if (job === undefined) return undefined;
  const after = { ...job, ...change, lastEvent: job.lastEvent + 1, updatedAt: at };
  await writeJob(tx, job, after);
  await insertEvent(tx, after, type, message, at);
  return after;
}

/** Writes the changed columns. */
async function writeJob(tx: Transaction, before: BuildJob, after: BuildJob): Promise<void> {
  const changed = (Object.keys(after) as (keyof BuildJob)[]).filter((key) => after[key] !== before[key]);
  if (changed.length === 0) return;
  const params: SqlValue[] = [after.id];
  const sets = changed.map((key) => `${snake(key)} = $${params.push(after[key])}`);
  await tx.query(`UPDATE build_jobs SET ${sets.join(', ')} WHERE id = $1`, params);
  tx.notify(EVENT_CHANNEL);
}

function snake(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
