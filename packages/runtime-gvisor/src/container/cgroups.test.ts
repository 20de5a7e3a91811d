import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cgroupTrial, GOOD_TRIAL } from '../../testing/cgroup-trial.ts';
import { findCgroups, openCgroups } from './cgroups.ts';

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

describe('the control groups of a server', () => {
  let root: string;
  const reported: string[] = [];
  const report = (what: string) => reported.push(what);
  beforeEach(async () => {
    reported.length = 0;
    root = await mkdtemp(join(tmpdir(), 'torpor-c-'));
  });
  afterEach(() => rm(root, { recursive: true }));

  it('are opened without a report', async () => {
    await mkdir(join(root, 'memory'));
    expect((await openCgroups('torpor-test', report, root))?.controllers).toEqual(['memory']);
    expect(reported).toEqual([]);
  });

  it('are reported when they cannot be made: sandboxes run without their limits then', async () => {
    await writeFile(join(root, 'memory'), '');
    expect(await openCgroups('torpor-test', report, root)).toBeNull();
    expect(reported).toEqual([expect.stringContaining('without limits')]);
  });
});
