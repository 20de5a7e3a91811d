import { execFile } from 'node:child_process';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openDirectoryStore } from '@torpor/checkpoint-store';
import { failureOf, paused, sealing, unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeProcessWorld, type ProcessWorld } from '../testing/process-world.ts';

const run = promisify(execFile);

/** The checkpoint store is on a real file system of two mebibytes, where the test may mount one. */
describe('a disk that becomes full during a checkpoint', () => {
  let world: ProcessWorld;
  let disk: string;
  let refusal: string | undefined;

  beforeEach(async () => {
    world = await makeProcessWorld();
    disk = join(world.dataDir, 'small');
    await run('mkdir', [disk]);
    refusal = await run('mount', ['-t', 'tmpfs', '-o', 'size=2m,mode=0700', 'tmpfs', disk]).then(
      () => undefined,
      (error: Error) => `needs root to mount a tmpfs: ${error.message}`,
    );
  });
  afterEach(async () => {
    if (refusal === undefined) await run('umount', [disk]);
    await world.dispose();
  });

  it.for([
    ['many small files', 'for i in $(seq 40); do head -c 100000 /dev/urandom > part$i; done'],
    ['one big file', 'head -c 20000000 /dev/urandom > big'],
  ])(
    'fails with storage_full, changes nothing and leaves no files behind: %s',
    async ([, fill], { skip }) => {
      skip(refusal !== undefined, refusal);
      const instance = await world.started();
      await world.run(instance, fill ?? '');
      const before = await world.run(instance, 'cat part* big 2>/dev/null | sha256sum');
      const store = await openDirectoryStore({ root: join(disk, 'store') });
      const small = { runtime: world.runtime, store };
      await world.runtime.freeze(instance, unhurried);

      const failure = await failureOf(
        sealing(small, (staging) => world.runtime.capture(instance, 'files', staging, unhurried)),
      );

      expect(failure).toMatchObject({ code: 'storage_full', retryable: true });
      for await (const { id, state } of store.list()) {
        expect(state).toBe('staged');
        await store.remove(id);
      }
      expect(await readdir(join(disk, 'store/staging'))).toEqual([]);
      expect(await world.runtime.observe(instance, unhurried)).toEqual({ is: 'frozen' });
      await world.runtime.thaw(instance, null, unhurried);
      expect(await world.run(instance, 'cat part* big 2>/dev/null | sha256sum')).toEqual(before);
      const next = await world.started({}, await paused(world, instance));
      expect(await world.run(next, 'cat part* big 2>/dev/null | sha256sum')).toEqual(before);
    },
  );

  it('fails a start with storage_full and leaves nothing of the instance', async ({ skip }) => {
    skip(refusal !== undefined, refusal);
    const instance = await world.started();
    await world.run(instance, 'head -c 5000000 /dev/urandom > big');
    const checkpoint = await paused(world, instance);
    const small = await makeProcessWorld({ instancesDir: join(disk, 'i'), users: null });
    try {
      await writeFile(join(disk, 'ballast'), Buffer.alloc(1 << 20));
      const start = small.started({}, checkpoint);
      expect((await failureOf(start)).code).toBe('storage_full');
      await rm(join(disk, 'ballast'));
      for await (const left of small.runtime.list(unhurried)) await small.runtime.destroy(left, unhurried);
      expect(await readdir(join(disk, 'i'))).toEqual(['.removing']);
    } finally {
      await small.dispose();
    }
  });
});
