/** Nothing of the machine's system, and no root of a sandbox, can be reached through the data directory. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { unhurried } from '@torpor/engine/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';

const run = promisify(execFile);
const why = await whyNoGvisor();
const MUCH = { maxBuffer: 256 * 1024 * 1024 };

describe.skipIf(why !== null)('mounts of the gVisor runtime', { timeout: 120_000 }, () => {
  let world: GvisorWorld;

  beforeAll(async () => {
    world = await makeGvisorWorld();
  }, 120_000);
  afterEach(() => world?.dispose(), 60_000);
  afterAll(() => world?.close(), 60_000);

  /** As a program of the host sees them. */
  async function hostMounts(): Promise<string[]> {
    const table = await readFile('/proc/self/mountinfo', 'utf8');
    return table.split('\n').filter((line) => line.includes(world.dataDir));
  }

  /** Directories by device and inode, which no two directories share. */
  async function directoriesIn(path: string, ...more: string[]): Promise<Set<string>> {
    const { stdout } = await run('find', [path, ...more, '-type', 'd', '-printf', '%D:%i\n'], MUCH);
    return new Set(stdout.split('\n').filter((line) => line !== ''));
  }

  /** What a program meets that walks through the data directory as `rm -rf` does. */
  async function systemDirectoriesMet(): Promise<string[]> {
    const system = await directoriesIn('/usr', '-xdev');
    const met = await directoriesIn(world.dataDir);
    expect(met.size).toBeGreaterThan(10);
    return [...met].filter((directory) => system.has(directory));
  }

  it('are invisible to the host while sandboxes run and after the server has stopped', async () => {
    const instance = await world.started();
    await world.program.write(instance, '/home/user/a', 'a');
    expect(await hostMounts()).toEqual([]);
    expect(await systemDirectoriesMet()).toEqual([]);

    await world.whileClosed(async () => {
      expect(await hostMounts()).toEqual([]);
      expect(await systemDirectoriesMet()).toEqual([]);
    });

    expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    expect(await world.program.read(instance, '/home/user/a')).toBe('a');
    expect(await hostMounts()).toEqual([]);
  });
});
