/** A backup of sandboxes that keep their memory, taken while the server runs and restored where nothing else is. */
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { backUpDataDirectory, destroyDataDirectory, restoreDataDirectory } from '@torpor/server';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const why = await whyNoGvisor();
const options = { withDatabase: true, progress: () => {}, signal: new AbortController().signal };

describe.skipIf(why !== null)('a backup of gVisor sandboxes', { timeout: 300_000 }, () => {
  let top: string;
  let server: TorporProcess | undefined;
  const at = (name: string) => join(top, name);

  beforeEach(async () => {
    top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-gb-')));
  });
  afterEach(async () => {
    await server?.end();
    for (const name of ['data', 'again']) {
      await destroyDataDirectory(at(name), { force: true, signal: options.signal }).catch(() => {});
    }
    await rm(top, { recursive: true });
  });

  it('wakes its sleepers with their memory and their files', async () => {
    server = await startTorpor(at('data'), {}, 'gvisor');
    const { sandboxes } = server.torpor;
    const { id } = await sandboxes.create({});
    await sandboxes.exec(id, 'echo first > note');
    // A process that nothing but memory can bring back.
    await sandboxes.execInBackground(id, 'sleep 98765');
    const pid = (await sandboxes.exec(id, 'pgrep -f "sleep 98765" | head -n 1')).stdout;
    await sandboxes.pause(id);
    await sandboxes.resume(id);
    await sandboxes.exec(id, 'echo second >> note');
    await sandboxes.pause(id);

    const result = await backUpDataDirectory(at('data'), at('backup'), options);
    expect(result).toMatchObject({ database: 'sqlite', unsaved: [] });
    expect(result.layers).toBeGreaterThan(2);
    // What happens after the backup is not in it.
    await sandboxes.resume(id);
    await sandboxes.exec(id, 'echo third >> note');
    await server.end();
    server = undefined;
    await destroyDataDirectory(at('data'), { force: true, signal: options.signal });

    await restoreDataDirectory(at('backup'), at('again'), options);
    server = await startTorpor(at('again'), {}, 'gvisor');
    const restored = server.torpor.sandboxes;
    expect(await restored.get(id)).toMatchObject({ state: 'paused' });
    const woken = await restored.resume(id);
    expect(woken).toMatchObject({ sandbox: { state: 'running' }, lost: [] });
    expect((await restored.exec(id, 'cat note')).stdout).toBe('first\nsecond\n');
    expect((await restored.exec(id, 'pgrep -f "sleep 98765" | head -n 1')).stdout).toBe(pid);
    // A new sandbox starts from the restored template.
    const fresh = await restored.create({});
    expect((await restored.exec(fresh.id, 'echo here')).stdout).toBe('here\n');
  });
});
