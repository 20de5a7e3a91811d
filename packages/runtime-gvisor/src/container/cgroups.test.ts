import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { cgroupTrial, GOOD_TRIAL } from '../../testing/cgroup-trial.ts';
import { findCgroups } from './cgroups.ts';

const isRoot = process.getuid?.() === 0;
const host = isRoot ? await findCgroups() : null;

/** Tests the version that the host has. The campaign tests version 2 on a kernel of its own. */
describe.skipIf(host?.controllers.length !== 3)('the control groups of the host', () => {
  it('limit memory and processes, count what they refused, and are removed when they are empty', {
    timeout: 30_000,
  }, async () => {
    const parent = `torpor-test-${randomBytes(4).toString('hex')}`;
    expect(await cgroupTrial(parent)).toEqual({ version: host?.version, ...GOOD_TRIAL });
  });
});
