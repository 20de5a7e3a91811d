import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { cgroupTrial, GOOD_TRIAL } from '../../testing/cgroup-trial.ts';
import { findCgroups } from './cgroups.ts';

const isRoot = process.getuid?.() === 0;
const host = isRoot ? await findCgroups() : null;

/** Of the version that this machine has; the campaign asks a kernel that has the other. */
describe.skipIf(host?.controllers.length !== 3)('the control groups of this machine', () => {
  it('limit memory and processes, tell of what they refused, and go when they are empty', {
    timeout: 30_000,
  }, async () => {
    const parent = `torpor-test-${randomBytes(4).toString('hex')}`;
    expect(await cgroupTrial(parent)).toEqual({ version: host?.version, ...GOOD_TRIAL });
  });
});
