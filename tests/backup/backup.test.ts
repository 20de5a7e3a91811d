/** Backups that are taken while the server runs, and restored where nothing else is. */
import { execFile } from 'node:child_process';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { databaseKinds, freshDatabase } from '@torpor/engine/testing';
import { backUpDataDirectory, destroyDataDirectory, restoreDataDirectory } from '@torpor/server';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const run = promisify(execFile);
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

describe.runIf(databaseKinds.includes('postgres'))('a backup with PostgreSQL', { timeout: 120_000 }, () => {
  it('has a dump from which the sleepers of another server wake', async () => {
    const top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-pb-')));
    const [before, after] = [
      await freshDatabase('postgres', { migrated: false }),
      await freshDatabase('postgres', { migrated: false }),
    ];
    const [database, restoredTo] = [before.url ?? '', after.url ?? ''];
    let server = await startTorpor(join(top, 'data'), {}, 'process', ['--database', database]);
    try {
      const { id } = await server.torpor.sandboxes.create({});
      await server.torpor.sandboxes.exec(id, 'echo kept > note');
      await server.torpor.sandboxes.pause(id);
      const saved = await backUpDataDirectory(join(top, 'data'), join(top, 'backup'), {
        ...options,
        database,
      });
      expect(saved).toMatchObject({ database: 'postgres', checkpoints: 2, unsaved: [] });
      await server.end();

      const restored = await restoreDataDirectory(join(top, 'backup'), join(top, 'again'), options);
      await run('pg_restore', ['--no-owner', `--dbname=${restoredTo}`, restored.dump ?? '']);
      server = await startTorpor(join(top, 'again'), {}, 'process', ['--database', restoredTo]);
      await server.torpor.sandboxes.resume(id);
      expect((await server.torpor.sandboxes.exec(id, 'cat note')).stdout).toBe('kept\n');
    } finally {
      await server.end();
      await before.dispose();
      await after.dispose();
      await rm(top, { recursive: true });
    }
  });

  it('says why the database could not be saved', async () => {
    const top = await realpath(await mkdtemp(join(tmpdir(), 'torpor-pb-')));
    const server = await startTorpor(join(top, 'data'));
    try {
      const database = 'postgresql://nobody:secret@127.0.0.1:1/none';
      const backup = backUpDataDirectory(join(top, 'data'), join(top, 'backup'), { ...options, database });
      await expect(backup).rejects.toMatchObject({ code: 'unreachable' });
      await expect(backup).rejects.not.toThrow('secret');
    } finally {
      await server.end();
      await rm(top, { recursive: true });
    }
  });
});
