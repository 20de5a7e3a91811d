/** Processes and services as the API shows them, each with one status (R98). */
import type { TrackedJob } from '@torpor/engine';
import type { ProcessInfo } from '@torpor/envd';
import { JOB_LOSSES, type ProcessStatus, type ProcessView } from '@torpor/protocol';
import { commandOf } from './command.ts';

/** `sandboxGeneration` distinguishes a service that this start restarted from one that kept running. */
export function viewJobProcess(job: TrackedJob, sandboxGeneration: number, pid = job.pid): ProcessView {
  const { id: jobId, kind, name, command, cwd, startedAt } = job;
  const about = {
    jobId,
    command,
    cwd,
    status: statusOf(job, sandboxGeneration),
    reason: reasonOf(job),
    startedAt,
  };
  return kind === 'service'
    ? { id: name, kind, pid, ...about }
    : { id: jobId, kind: 'background', pid, ...about };
}

/** A process that is not a job: a command whose caller waits, or a process of an E2B client. */
export function viewUntrackedProcess({ pid, config }: ProcessInfo): ProcessView {
  const command = config === undefined ? '' : commandOf(config);
  const cwd = config?.cwd ?? null;
  const untracked = { id: null, jobId: null, kind: 'process', reason: null, startedAt: null } as const;
  return { ...untracked, pid, command, cwd, status: 'running' };
}

function statusOf({ state, restarts, generation }: TrackedJob, sandboxGeneration: number): ProcessStatus {
  if (state === 'completed') return 'exited';
  if (state !== 'running') return state;
  return restarts > 0 && generation === sandboxGeneration ? 'restarted' : 'running';
}

function reasonOf({ state, exitCode, signal, lostReason }: TrackedJob): string | null {
  if (lostReason !== null) return JOB_LOSSES[lostReason];
  if (state !== 'completed') return null;
  return signal === null ? `it ended with exit code ${exitCode}` : `it was ended by ${signal}`;
}
