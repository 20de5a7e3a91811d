import { execFile } from 'node:child_process';
import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { failureOf } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fill, listed, manifestFor, newCheckpointId, sealSmall } from '../testing/small-checkpoint.ts';
import { openDirectoryStore } from './directory-store.ts';

const run = promisify(execFile);

/** A real file system of one mebibyte, where we may mount one. */
describe('a store on a small disk of its own', () => {
  let disk: string;
  let refusal: string | undefined;

  beforeEach(async () => {
    disk = await files.mkdtemp(join(tmpdir(), 'small-disk-'));
    refusal = await run('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=0700', 'tmpfs', disk]).then(
      () => undefined,
      (error: Error) => `needs root to mount a tmpfs: ${error.message}`,
    );
  });
  afterEach(async () => {
    if (refusal === undefined) await run('umount', [disk]);
    await files.rm(disk, { recursive: true, force: true });
  });

  it('throws storage_full when there is no space for the manifest, and seals when there is space', async ({
    skip,
  }) => {
    skip(refusal !== undefined, refusal);
    const id = newCheckpointId();
    const store = await openDirectoryStore({ root: join(disk, 'store') });
    const staging = await store.stage(id);
    await fill(staging);
    const ballast = join(disk, 'ballast');
    await expect(files.writeFile(ballast, Buffer.alloc(2 << 20))).rejects.toMatchObject({ code: 'ENOSPC' });
    expect((await store.usage()).freeBytes).toBe(0);

    const failure = await failureOf(store.seal(staging, manifestFor(id)));

    expect(failure).toMatchObject({ code: 'storage_full', checkpointId: id, retryable: true });
    expect(failure.details?.['path']).toBe(join(disk, 'store/staging', id, 'parts.jsonl'));
    expect(await listed(store)).toEqual([{ id, state: 'staged' }]);
    expect((await failureOf(store.inspect(id))).code).toBe('checkpoint_missing');
    await files.rm(ballast);
    const { manifest } = await store.seal(staging, manifestFor(id));
    expect(await store.inspect(id)).toEqual(manifest);
  });

  it('removes checkpoints while the disk is full', async ({ skip }) => {
    skip(refusal !== undefined, refusal);
    const id = newCheckpointId();
    const store = await openDirectoryStore({ root: join(disk, 'store') });
    await sealSmall(store, id);
    await files.writeFile(join(disk, 'ballast'), Buffer.alloc(2 << 20)).catch(() => {});
    await store.remove(id);
    expect(await listed(store)).toEqual([]);
  });

  it('reads from a disk that became read-only, and says storage_readonly for every change', async ({
    skip,
  }) => {
    skip(refusal !== undefined, refusal);
    const id = newCheckpointId();
    const root = join(disk, 'store');
    await sealSmall(await openDirectoryStore({ root }), id);
    await run('mount', ['-o', 'remount,ro', disk]);

    const store = await openDirectoryStore({ root });

    await store.inspect(id);
    const changes = [() => store.stage(newCheckpointId()), () => store.verify(id), () => store.remove(id)];
    for (const change of changes) {
      expect((await failureOf(change())).code).toBe('storage_readonly');
    }
    expect(await listed(store)).toEqual([{ id, state: 'sealed' }]);
  });
});
