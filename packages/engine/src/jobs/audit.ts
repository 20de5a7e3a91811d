/** Whether the jobs of a sandbox say what its events and its state say. */
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

/** The states of a sandbox in which a job may be alive. A sandbox that is being killed has what it had before. */
const LIVE_IN: Readonly<Record<'running' | 'suspended', readonly SandboxState[]>> = {
  running: ['running', 'pausing', 'killing'],
  suspended: ['paused', 'resuming', 'killing'],
};

/** The first disagreement, or null. Jobs from before there were events for them have none. */
export function findJobDisagreement(
  jobs: readonly TrackedJob[],
  events: readonly EventView[],
  sandboxState: SandboxState,
): string | null {
  const told = new Map<unknown, JobState>();
  for (const { type, data } of events) {
    const state = STATE_AFTER[type];
    if (state !== undefined) told.set(data['jobId'], state);
  }
  for (const { id, state } of jobs) {
    const said = told.get(id);
    if (said !== undefined && said !== state) return `its job ${id} is ${state}, its events say ${said}`;
    if ((state === 'running' || state === 'suspended') && !LIVE_IN[state].includes(sandboxState))
      return `its job ${id} is ${state} while it is ${sandboxState}`;
  }
  return null;
}
