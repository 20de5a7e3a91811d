/** One change of one job: a pure function over the table of transitions, and the event that records the change. */
import {
  type EventData,
  JOB_LOSSES,
  JOB_TRANSITIONS,
  type JobLoss,
  type OperationId,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { NewEvent } from '../ledger/transition.ts';
import type { ProcessEnd } from '../ports/processes.ts';
import type { TrackedJob } from './job.ts';

export type JobChange =
  | { readonly is: 'suspended' | 'resumed' }
  | { readonly is: 'restarted'; readonly generation: number }
  | ({ readonly is: 'completed' } & ProcessEnd)
  | { readonly is: 'lost'; readonly reason: JobLoss };

const ALIVE = { endedAt: null, exitCode: null, signal: null, lostReason: null } as const;

/** The job after the change. Throws for a change that the table does not list. */
export function applyChange(job: TrackedJob, change: JobChange, now: number): TrackedJob {
  const state = JOB_TRANSITIONS[job.state][change.is];
  if (state === undefined) {
    throw new TorporError('conflict', `Job ${job.id} is ${job.state} and cannot become ${change.is}.`);
  }
  switch (change.is) {
    case 'suspended':
      return { ...job, state };
    case 'resumed':
      return { ...job, ...ALIVE, state };
    case 'restarted': {
      const { generation } = change;
      return { ...job, ...ALIVE, state, generation, restarts: job.restarts + 1, startedAt: now };
    }
    case 'completed': {
      const { exitCode, signal } = change;
      return { ...job, state, exitCode, signal, endedAt: now };
    }
    case 'lost':
      return { ...job, state, lostReason: change.reason, endedAt: now };
  }
}

/** The event that records what a job has just become. */
export function jobEvent(
  ctx: Pick<Context, 'ids' | 'clock'>,
  job: TrackedJob,
  what: JobChange['is'] | 'created',
  operationId: OperationId | null,
): NewEvent {
  const fields = { id: ctx.ids.next('evt'), at: ctx.clock.now(), operationId };
  const jobData: EventData<'job.suspended'> = { jobId: job.id, kind: job.kind, name: job.name };
  switch (what) {
    case 'created':
      return { ...fields, type: 'job.created', data: { ...jobData, forkedFrom: job.forkedFrom } };
    case 'suspended':
    case 'resumed':
      return { ...fields, type: `job.${what}`, data: jobData };
    case 'restarted':
      return { ...fields, type: 'job.restarted', data: { ...jobData, restarts: job.restarts } };
    case 'completed': {
      const { exitCode, signal } = job;
      return { ...fields, type: 'job.completed', data: { ...jobData, exitCode: exitCode ?? 0, signal } };
    }
    case 'lost': {
      const reason = job.lostReason ?? 'not_found';
      return { ...fields, type: 'job.lost', data: { ...jobData, reason, message: JOB_LOSSES[reason] } };
    }
  }
}

/** A job whose process has just started. */
export function startedJob(
  about: Pick<TrackedJob, 'id' | 'org' | 'kind' | 'name' | 'tag' | 'command' | 'cwd'> & Partial<TrackedJob>,
  at: { readonly sandboxId: SandboxId; readonly generation: number; readonly now: number },
): TrackedJob {
  const { sandboxId, generation, now } = at;
  return {
    pid: null,
    forkedFrom: null,
    ...about,
    ...ALIVE,
    sandboxId,
    generation,
    state: 'running',
    restarts: 0,
    createdAt: now,
    startedAt: now,
  };
}
