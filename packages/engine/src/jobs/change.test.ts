import { JOB_CHANGES, JOB_STATES, JOB_TRANSITIONS, type JobState, serviceTag } from '@torpor/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { applyChange, type JobChange, startedJob } from './change.ts';
import { changesAtStart } from './follow.ts';
import type { TrackedJob } from './job.ts';

const SANDBOX = 'sbx_aaaaaaaaaaaaaaaaaaaa';

function jobIn(state: JobState, tag = 'job_aaaaaaaaaaaaaaaaaaaa', service = false): TrackedJob {
  const about = service
    ? ({ kind: 'service', name: tag, tag: serviceTag(tag) } as const)
    : ({ kind: 'process', name: null, tag } as const);
  const at = { sandboxId: SANDBOX, generation: 1, now: 1 } as const;
  const running = startedJob({ id: `job_${tag}`, org: 'org', command: 'run', cwd: null, ...about }, at);
  switch (state) {
    case 'running':
      return running;
    case 'suspended':
      return applyChange(running, { is: 'suspended' }, 2);
    case 'completed':
      return applyChange(running, { is: 'completed', exitCode: 3, signal: null }, 2);
    case 'lost':
      return applyChange(running, { is: 'lost', reason: 'crash' }, 2);
  }
}

const HAPPENINGS: Readonly<Record<JobChange['is'], JobChange>> = {
  suspended: { is: 'suspended' },
  resumed: { is: 'resumed' },
  restarted: { is: 'restarted', generation: 2 },
  completed: { is: 'completed', exitCode: 1, signal: null },
  lost: { is: 'lost', reason: 'rollback' },
};

describe('a change of a job', () => {
  const pairs = JOB_STATES.flatMap((state) => JOB_CHANGES.map((change) => [state, change] as const));

  it.each(pairs)('%s and %s: follows the table, or is refused (R98)', (state, change) => {
    const job = jobIn(state);
    const to = JOB_TRANSITIONS[state][change];
    if (to === undefined) {
      expect(() => applyChange(job, HAPPENINGS[change], 9)).toThrow(
        expect.objectContaining({ code: 'conflict' }),
      );
      return;
    }
    const after = applyChange(job, HAPPENINGS[change], 9);
    expect(after).toMatchObject({ id: job.id, state: to });
    // The schema has the same rule: end, exit code and reason are set exactly in the states that have them.
    expect(after.endedAt !== null).toBe(to === 'completed' || to === 'lost');
    expect(after.exitCode !== null).toBe(to === 'completed');
    expect(after.lostReason !== null).toBe(to === 'lost');
  });
});

describe('jobs after a start', () => {
  const state = fc.constantFrom(...JOB_STATES);
  const processes = fc.uniqueArray(fc.record({ tag: fc.stringMatching(/^[a-z]{1,3}$/), state }), {
    selector: ({ tag }) => tag,
  });

  it('run if they are services or were restored, and none is suspended (R98)', () => {
    fc.assert(
      fc.property(
        processes,
        processes,
        fc.uniqueArray(fc.stringMatching(/^[a-z]{1,3}$/)),
        fc.uniqueArray(fc.stringMatching(/^[a-z]{1,3}$/)),
        (own, declared, back, done) => {
          const services = declared.map(({ tag }) => ({
            name: tag,
            command: 'serve',
            jobId: `job_${tag}` as const,
          }));
          const jobs = [
            ...own.map((one) => jobIn(one.state, one.tag)),
            ...declared.map((one) => jobIn(one.state, one.tag, true)),
          ];
          const captured = new Set(back);
          const succeeded = new Set(done.map(serviceTag));
          const changes = changesAtStart({
            sandbox: { id: SANDBOX, org: 'org', generation: 2, config: { services } as never },
            jobs,
            captured,
            foreign: [],
            succeeded,
            loss: 'rollback',
            now: 9,
            newId: () => 'job_new',
          });
          const after = new Map(jobs.map((job) => [job.tag, job]));
          for (const { job } of changes) after.set(job.tag, job);
          for (const before of jobs) {
            const job = after.get(before.tag) ?? before;
            expect(job.state).not.toBe('suspended');
            const isBack = captured.has(job.tag) || job.kind === 'service';
            const wasAlive = before.state === 'running' || before.state === 'suspended';
            if (isBack) expect(job.state).toBe('running');
            else if (wasAlive) expect(job).toMatchObject({ state: 'lost', lostReason: 'rollback' });
            else expect(job).toBe(before);
            const isRestarted = job.kind === 'service' && !captured.has(job.tag) && !succeeded.has(job.tag);
            expect(job.restarts).toBe(isRestarted ? before.restarts + 1 : before.restarts);
          }
        },
      ),
    );
  });
});
