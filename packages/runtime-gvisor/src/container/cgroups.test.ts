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

  it('have the processes that the server can name as members, and not those of another container', async () => {
    const cgroups = await mkdir(join(root, 'memory')).then(() => openCgroups('torpor-test', report, root));
    await cgroups?.make('x');
    await writeFile(join(root, 'memory/torpor-test/x/cgroup.procs'), '0\n12\n0\n');
    expect(await cgroups?.members('x')).toEqual([12]);
  });

  it('are reported when they cannot be made: sandboxes run without their limits then', async () => {
    await writeFile(join(root, 'memory'), '');
    expect(await openCgroups('torpor-test', report, root)).toBeNull();
    expect(reported).toEqual([expect.stringContaining('without limits')]);
  });

  it.each([
    [
      'v1',
      'memory',
      'memory.limit_in_bytes',
      'memory.usage_in_bytes',
      'total_inactive_file',
      '9223372036854771712',
    ],
    ['v2', '.', 'memory.max', 'memory.current', 'inactive_file', 'max'],
  ])(
    'show the memory of every group around the sandboxes that has a limit (%s)',
    async (version, at, limit, usage, droppable, none) => {
      if (version === 'v2') await writeFile(join(root, 'cgroup.controllers'), 'memory');
      const own = join(root, at, 'torpor-test');
      await mkdir(own, { recursive: true });
      const cgroups = await openCgroups('torpor-test', report, root);
      const fill = async (group: string, limitBytes: string) => {
        await writeFile(join(group, limit), `${limitBytes}\n`);
        await writeFile(join(group, usage), '300\n');
        await writeFile(join(group, 'memory.stat'), `cache 1\n${droppable} 50\n`);
      };
      expect(cgroups?.limitedMemory()).toEqual([]);
      await fill(own, none);
      await fill(join(root, at), '1000');
      expect(cgroups?.limitedMemory()).toEqual([{ totalBytes: 1_000, availableBytes: 750 }]);
      await fill(own, '400');
      expect(cgroups?.limitedMemory()).toEqual([
        { totalBytes: 1_000, availableBytes: 750 },
        { totalBytes: 400, availableBytes: 150 },
      ]);
    },
  );
});
