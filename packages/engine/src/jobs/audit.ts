/** Checks that the rows of a sandbox's jobs agree with its events and its state. */
import type { EventView, JobState, SandboxState } from '@torpor/protocol';
import type { TrackedJob } from './job.ts';

const STATE_AFTER: Readonly<Partial<Record<EventView['type'], JobState>>> = {
  'job.created': 'running',
  'job.suspended': 'suspended',
  'job.resumed': 'running',
  'job.restarted': 'running',
  'job.completed': 'completed',
  'job.lost': 'lost',
};

/** The states of a sandbox in which a job may be alive. A sandbox that is being killed still has the jobs it had before. */
const LIVE_IN: Readonly<Record<'running' | 'suspended', readonly SandboxState[]>> = {
  running: ['running', 'pausing', 'killing'],
  suspended: ['paused', 'resuming', 'killing'],
};

/** The first disagreement, or null. Jobs that are older than the events of jobs have no events. */
export function findJobDisagreement(
  jobs: readonly TrackedJob[],
  events: readonly EventView[],
  sandboxState: SandboxState,
): string | null {
  const stateByEvents = new Map<unknown, JobState>();
  for (const { type, data } of events) {
    const state = STATE_AFTER[type];
    if (state !== undefined) stateByEvents.set(data['jobId'], state);
  }
  for (const { id, state } of jobs) {
    const expected = stateByEvents.get(id);
    if (expected !== undefined && expected !== state)
      return `its job ${id} is ${state}, its events say ${expected}`;
    if ((state === 'running' || state === 'suspended') && !LIVE_IN[state].includes(sandboxState))
      return `its job ${id} is ${state} while it is ${sandboxState}`;
  }
  return null;
}
