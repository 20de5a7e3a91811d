import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CheckpointStore, Staging } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { errno, FailingFs, type FsCall } from '../testing/failing-store-fs.ts';
import { fill, listed, manifestFor, newCheckpointId, sealSmall } from '../testing/small-checkpoint.ts';
import { openDirectoryStore } from './directory-store.ts';

/** Many small seals, each with its syncs. */
const LONG = 60_000;
const WRITES = ['file.sync', 'file.writeFile', 'rename'];

let root: string;
let id: CheckpointId;
let store: CheckpointStore;
beforeEach(async () => {
  root = await files.mkdtemp(join(tmpdir(), 'seal-faults-'));
  id = newCheckpointId();
  store = await openDirectoryStore({ root });
});
afterEach(() => files.rm(root, { recursive: true, force: true }));

/** The file system calls of one undisturbed seal; `first` is how many came before it. */
async function callsOfSeal(): Promise<{ calls: FsCall[]; first: number }> {
  const watched = new FailingFs();
  const watchedStore = await openDirectoryStore({ root, fs: watched.fs });
  const staging = await watchedStore.stage(id);
  await fill(staging);
  const first = watched.calls.length;
  await watchedStore.seal(staging, manifestFor(id));
  await store.remove(id);
  return { calls: watched.calls.slice(first), first };
}

async function stagedOn(fs: FailingFs['fs']): Promise<{ failingStore: CheckpointStore; staging: Staging }> {
  const failingStore = await openDirectoryStore({ root, fs });
  const staging = await failingStore.stage(id);
  await fill(staging);
  return { failingStore, staging };
}

describe('a seal that fails', () => {
  it.each([
    ['ENOSPC', 'storage_full'],
    ['EROFS', 'storage_readonly'],
    ['EIO', 'checkpoint_unreadable'],
  ])(
    'by %s at any call seals nothing, says %s, and can be tried again',
    { timeout: LONG },
    async (code, expected) => {
      const { calls, first } = await callsOfSeal();
      for (const { index, name } of calls) {
        const failing = new FailingFs((call) => (call.index === index ? errno(code) : undefined));
        const { failingStore, staging } = await stagedOn(failing.fs);
        expect(failing.calls.length).toBe(first);

        const failure = await failureOf(failingStore.seal(staging, manifestFor(id)));

        expect(failure).toMatchObject({ checkpointId: id, details: { location: store.location(id) } });
        if (WRITES.includes(name)) {
          expect(failure.code).toBe(expected);
          expect(failure.details?.['path']).toContain(root);
        }
        expect(await listed(store)).toEqual([{ id, state: 'staged' }]);
        expect((await failureOf(store.inspect(id))).code).toBe('checkpoint_missing');
        await failingStore.seal(staging, manifestFor(id));
        await store.inspect(id);
        await store.remove(id);
        expect(await listed(store)).toEqual([]);
        await failing.close();
      }
    },
  );

  it.each([
    ['EDQUOT', 'storage_full'],
    ['EACCES', 'storage_readonly'],
    ['EPERM', 'storage_readonly'],
    ['EMFILE', 'checkpoint_unreadable'],
  ])('by %s says %s', async (code, expected) => {
    const failing = new FailingFs((call) => (call.name === 'file.writeFile' ? errno(code) : undefined));
    const { failingStore, staging } = await stagedOn(failing.fs);
    expect(await failureOf(failingStore.seal(staging, manifestFor(id)))).toMatchObject({
      code: expected,
      checkpointId: id,
    });
  });

  it('names the entry that could not be made durable', async () => {
    const failing = new FailingFs((call) =>
      call.name === 'file.sync' && call.path.endsWith('b.txt') ? errno('ENOSPC') : undefined,
    );
    const { failingStore, staging } = await stagedOn(failing.fs);
    expect(await failureOf(failingStore.seal(staging, manifestFor(id)))).toMatchObject({
      code: 'storage_full',
      details: { entry: 'dir/b.txt', path: join(staging.path, 'dir/b.txt') },
    });
  });

  it('reports the failure only after every call under way has ended', async () => {
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const failing = new FailingFs((call) =>
      call.name === 'file.sync' && call.path.endsWith('a.txt') ? errno('EIO') : undefined,
    );
    const { open } = failing.fs;
    let ended = false;
    const slow: FailingFs['fs'] = {
      ...failing.fs,
      open: async (path, flags, mode) => {
        if (path.toString().endsWith('b.txt')) {
          await held;
          ended = true;
        }
        return open(path, flags, mode);
      },
    };
    const { failingStore, staging } = await stagedOn(slow);
    const failure = failureOf(failingStore.seal(staging, manifestFor(id))).then(() => ended);
    setImmediate(release);
    expect(await failure).toBe(true);
  });
});

describe('a seal that succeeds', () => {
  it('has synced every file and directory before the rename, and both parents after it (invariant 6)', async () => {
    const { calls } = await callsOfSeal();
    const renames = calls.filter((call) => call.name === 'rename');
    expect(renames).toHaveLength(1);
    const at = calls.indexOf(renames[0] as FsCall);
    const synced = (part: readonly FsCall[]) =>
      part.filter((call) => call.name === 'file.sync').map((call) => call.path.slice(root.length + 1));

    const before = synced(calls.slice(0, at));
    const staged = `staging/${id}`;
    expect(before).toEqual(
      expect.arrayContaining(
        [
          'content/a.txt',
          'content/dir/b.txt',
          'content/dir',
          'content/empty',
          'content',
          'parts.jsonl',
          'manifest.json',
        ]
          .map((name) => `${staged}/${name}`)
          .concat(staged, 'staging'),
      ),
    );
    // The directory with the records is synced when they are in it.
    expect(before.slice(-2).sort()).toEqual(['staging', staged]);
    expect(synced(calls.slice(at)).sort()).toEqual(['sealed', 'staging']);
  });

  it('is synced again when it is repeated, because a crash may have come before the sync', async () => {
    await sealSmall(store, id);
    const watched = new FailingFs();
    const again = await openDirectoryStore({ root, fs: watched.fs });
    const first = watched.calls.length;
    await again.seal({ checkpointId: id, path: 'unused' }, manifestFor(id));
    const synced = watched.calls.slice(first).filter((call) => call.name === 'file.sync');
    expect(synced.map((call) => call.path).sort()).toEqual([join(root, 'sealed'), join(root, 'staging')]);
  });
});
