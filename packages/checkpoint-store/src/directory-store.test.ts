import { renameSync } from 'node:fs';
import * as files from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { failureOf } from '@torpor/engine/testing';
import { checksummedRecord } from '@torpor/layers';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type CheckpointStoreSubject,
  checkpointStoreContract,
} from '../testing/checkpoint-store-contract.ts';
import { errno, FailingFs } from '../testing/failing-store-fs.ts';
import { fill, listed, manifestFor, newCheckpointId, sealSmall } from '../testing/small-checkpoint.ts';
import { makeVersion1 } from '../testing/version-1.ts';
import { openDirectoryStore } from './directory-store.ts';

async function temporaryRoot(): Promise<string> {
  return files.mkdtemp(join(tmpdir(), 'checkpoint-store-'));
}

checkpointStoreContract('directory', async (): Promise<CheckpointStoreSubject> => {
  const root = await temporaryRoot();
  const at = (id: CheckpointId, ...names: string[]) => join(root, 'sealed', id, ...names);
  const edit = async (path: string, change: (text: string) => string) => {
    await files.writeFile(path, change(await files.readFile(path, 'utf8')));
  };
  return {
    open: () => openDirectoryStore({ root }),
    damage: {
      replaceEntry: (id, entry, content) => files.writeFile(at(id, 'content', entry), content),
      deleteEntry: (id, entry) => files.rm(at(id, 'content', entry), { recursive: true }),
      addEntry: (id, entry) => files.writeFile(at(id, 'content', entry), ''),
      editManifest: (id, change) => edit(at(id, 'manifest.json'), change),
      deleteManifest: (id) => files.rm(at(id, 'manifest.json')),
      editParts: (id, change) => edit(at(id, 'parts.jsonl'), change),
      editDigests: (id, change) => edit(at(id, 'digests.json'), change),
      deleteCheckpoint: (id) => files.rm(at(id), { recursive: true }),
    },
    close: () => files.rm(root, { recursive: true, force: true }),
  };
});

describe('directory store', () => {
  let root: string;
  let id: CheckpointId;
  beforeEach(async () => {
    root = join(await temporaryRoot(), 'made', 'here');
    id = newCheckpointId();
  });
  afterEach(() => files.rm(dirname(dirname(root)), { recursive: true, force: true }));

  it('keeps everything from other users of the machine', async () => {
    const store = await openDirectoryStore({ root });
    const staging = await store.stage(id);
    for (const path of [root, join(root, 'sealed'), dirname(staging.path), staging.path]) {
      expect((await files.stat(path)).mode & 0o777).toBe(0o700);
    }
  });

  it('says unreadable, not missing, when the store is not mounted (R92)', async () => {
    const store = await openDirectoryStore({ root });
    await sealSmall(store, id);
    await files.rename(root, `${root}-elsewhere`);
    await files.mkdir(root);
    for (const call of [() => store.read(id), () => store.inspect(id), () => store.verify(id)]) {
      expect(await failureOf(call())).toMatchObject({ code: 'checkpoint_unreadable', checkpointId: id });
    }
    expect((await failureOf(listed(store))).code).toBe('checkpoint_unreadable');
  });

  it('says unreadable, not missing, when the store is unmounted during a call (R92)', async () => {
    await sealSmall(await openDirectoryStore({ root }), id);
    const failing = new FailingFs((call) => {
      if (call.name === 'readdir') renameSync(root, `${root}-elsewhere`);
      return undefined;
    });
    const store = await openDirectoryStore({ root, fs: failing.fs });
    expect(await failureOf(store.inspect(id))).toMatchObject({
      code: 'checkpoint_unreadable',
      checkpointId: id,
    });
  });

  it('refuses a checkpoint that was moved to another id', async () => {
    const store = await openDirectoryStore({ root });
    const other = newCheckpointId();
    await sealSmall(store, other);
    await files.rename(join(root, 'sealed', other), join(root, 'sealed', id));
    expect(await failureOf(store.read(id))).toMatchObject({ code: 'checkpoint_corrupt', checkpointId: id });
  });

  it('refuses digests that were copied from another checkpoint', async () => {
    const store = await openDirectoryStore({ root });
    const other = newCheckpointId();
    for (const each of [id, other]) {
      await sealSmall(store, each);
      await store.verify(each);
    }
    await files.copyFile(
      join(root, 'sealed', other, 'digests.json'),
      join(root, 'sealed', id, 'digests.json'),
    );
    expect((await failureOf(store.verify(id))).code).toBe('checkpoint_corrupt');
  });

  it('says version_unsupported for a record of a newer version', async () => {
    const store = await openDirectoryStore({ root });
    await sealSmall(store, id);
    await files.writeFile(join(root, 'sealed', id, 'manifest.json'), checksummedRecord({ version: 3 }));
    expect(await failureOf(store.read(id))).toMatchObject({ code: 'version_unsupported', checkpointId: id });
  });

  it('reads a checkpoint of version 1, and finds its parts', async () => {
    const store = await openDirectoryStore({ root });
    const { manifest } = await sealSmall(store, id);
    await makeVersion1(root, id);
    const expected = { ...manifest, version: 1 };
    expect(await store.read(id)).toEqual(expected);
    expect(await store.inspect(id)).toEqual(expected);
    expect((await store.verify(id)).digested).toBe(9);
  });

  it('finds the layers of a checkpoint of version 1 in what its runtime needs', async () => {
    const store = await openDirectoryStore({ root });
    const staging = await store.stage(id);
    await files.mkdir(join(staging.path, 'memory'));
    for (const name of ['memory/pages', 'secrets.json', 'layers.json']) {
      await files.writeFile(join(staging.path, name), name);
    }
    const layers = [{ id: `lay_${'a'.repeat(20)}`, nonce: 'n', owner: id }];
    await store.seal(staging, { ...manifestFor(id), runtime: 'gvisor', needs: { version: 1, layers } });
    await makeVersion1(root, id);
    expect((await store.read(id)).contents).toEqual([
      { name: 'memory', encoding: 'packed', top: ['memory'], layers: [] },
      { name: 'secrets', encoding: 'whole', top: ['secrets.json'], layers: [] },
      { name: 'layers', encoding: 'whole', top: ['layers.json'], layers },
    ]);
  });

  it.each([
    '',
    'null',
    '{',
    '[]',
    '{"version":1}',
    '{"version":1,"manifest":{"bytes":"1"}}',
    'x'.repeat(5000),
  ])('rejects the seal record %j of version 1', async (text) => {
    const store = await openDirectoryStore({ root });
    await sealSmall(store, id);
    await makeVersion1(root, id);
    await files.writeFile(join(root, 'sealed', id, 'seal.json'), text);
    const details = { record: 'seal.json', damage: 'record' };
    expect(await failureOf(store.read(id))).toMatchObject({ code: 'checkpoint_corrupt', details });
  });

  it('does not read a file into memory that is too large to be a seal record', async () => {
    await sealSmall(await openDirectoryStore({ root }), id);
    await makeVersion1(root, id);
    await files.truncate(join(root, 'sealed', id, 'seal.json'), 5000);
    const watched = new FailingFs();
    const store = await openDirectoryStore({ root, fs: watched.fs });
    expect((await failureOf(store.read(id))).code).toBe('checkpoint_corrupt');
    const read = watched.calls.filter((call) => call.name === 'file.readFile').map((call) => call.path);
    expect(read).toEqual([join(root, 'sealed', id, 'manifest.json')]);
  });

  it.each([
    ['a symlink to an equal file', (path: string) => files.symlink('dir/b.txt', path), 'type'],
    ['a directory', (path: string) => files.mkdir(path), 'type'],
  ])('finds %s in the place of a file', async (_, make, damage) => {
    const store = await openDirectoryStore({ root });
    await sealSmall(store, id);
    const path = join(store.path(id), 'a.txt');
    await files.rm(path);
    await make(path);
    const details = { entry: 'a.txt', damage };
    expect(await failureOf(store.inspect(id))).toMatchObject({ code: 'checkpoint_corrupt', details });
  });

  it('finds a symlink that points elsewhere', async () => {
    const store = await openDirectoryStore({ root });
    await sealSmall(store, id);
    const path = join(store.path(id), 'dir/link');
    await files.rm(path);
    await files.symlink('../b.txt', path);
    const details = { entry: 'dir/link', damage: 'target' };
    expect(await failureOf(store.inspect(id))).toMatchObject({ code: 'checkpoint_corrupt', details });
  });

  it.each(['EIO', 'EACCES', 'EPERM', 'ESTALE', 'EMFILE'])(
    'is unreadable, not damaged, when reading ends in %s (R91, R92)',
    async (code) => {
      await sealSmall(await openDirectoryStore({ root }), id);
      const calls = await callsOf((fs) =>
        openDirectoryStore({ root, fs }).then((store) => store.inspect(id)),
      );
      const reads = calls.filter((call) => call.path.includes(id) && call.name !== 'file.close');
      expect(reads.length).toBeGreaterThan(5);
      for (const { index } of reads) {
        const failing = new FailingFs((call) => (call.index === index ? errno(code) : undefined));
        const store = await openDirectoryStore({ root, fs: failing.fs });
        expect(await failureOf(store.inspect(id))).toMatchObject({
          code: 'checkpoint_unreadable',
          checkpointId: id,
          details: { location: store.location(id) },
        });
        await failing.close();
      }
    },
  );

  it('inspects without reading content', async () => {
    await sealSmall(await openDirectoryStore({ root }), id);
    const calls = await callsOf((fs) => openDirectoryStore({ root, fs }).then((store) => store.inspect(id)));
    const opened = calls.filter((call) => call.name === 'open' && call.path.includes(id));
    expect(opened.map((call) => call.path.slice(call.path.indexOf(id) + id.length))).toEqual([
      '/manifest.json',
    ]);
  });

  it('reads from a store that cannot be written', async () => {
    await sealSmall(await openDirectoryStore({ root }), id);
    const readonly = new FailingFs((call) =>
      ['file.writeFile', 'rename', 'rm'].includes(call.name) ? errno('EROFS') : undefined,
    );
    const store = await openDirectoryStore({ root, fs: readonly.fs });
    await store.inspect(id);
    expect(await failureOf(store.verify(id))).toMatchObject({ code: 'storage_readonly', checkpointId: id });
    expect(await failureOf(store.remove(id))).toMatchObject({ code: 'storage_readonly', checkpointId: id });
    expect(await failureOf(store.stage(newCheckpointId()))).toMatchObject({ code: 'storage_readonly' });
  });

  it('stops a seal when it is aborted, and can seal the checkpoint later', async () => {
    const abort = new AbortController();
    const failing = new FailingFs((call) => {
      if (call.name === 'file.sync' && call.path.endsWith('a.txt')) abort.abort(new Error('given up'));
      return undefined;
    });
    const store = await openDirectoryStore({ root, fs: failing.fs });
    const staging = await store.stage(id);
    await fill(staging);
    await expect(store.seal(staging, manifestFor(id), abort.signal)).rejects.toThrow('given up');
    expect(await listed(store)).toEqual([{ id, state: 'staged' }]);
    await store.seal(staging, manifestFor(id));
    await store.inspect(id);
  });

  it('lists only what can be a checkpoint', async () => {
    const store = await openDirectoryStore({ root });
    await files.mkdir(join(root, 'sealed', 'lost+found'));
    await files.writeFile(join(root, 'staging', '.DS_Store'), '');
    await store.stage(id);
    expect(await listed(store)).toEqual([{ id, state: 'staged' }]);
  });
});

async function callsOf(work: (fs: FailingFs['fs']) => Promise<unknown>) {
  const watched = new FailingFs();
  await work(watched.fs);
  await watched.close();
  return watched.calls;
}
