/**
 * What every checkpoint store must do. The tests of an implementation call `checkpointStoreContract` once.
 */
import { execFile } from 'node:child_process';
import * as files from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { CheckpointStore, ContentPart, ContentSelection } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fill, listed, manifestFor, newCheckpointId, sealSmall } from './small-checkpoint.ts';

export interface CheckpointStoreSubject {
  /** Opens the store. A second call opens the same storage again. */
  open(): Promise<CheckpointStore>;
  /** Changes a sealed checkpoint without the store. Entries are named as in manifests. */
  readonly damage: {
    replaceEntry(id: CheckpointId, entry: string, content: string): Promise<void>;
    deleteEntry(id: CheckpointId, entry: string): Promise<void>;
    addEntry(id: CheckpointId, entry: string): Promise<void>;
    editManifest(id: CheckpointId, edit: (text: string) => string): Promise<void>;
    deleteManifest(id: CheckpointId): Promise<void>;
    /** Changes the records of the parts. */
    editParts(id: CheckpointId, edit: (text: string) => string): Promise<void>;
    editDigests(id: CheckpointId, edit: (text: string) => string): Promise<void>;
    deleteCheckpoint(id: CheckpointId): Promise<void>;
  };
  close(): Promise<void>;
}

export function checkpointStoreContract(name: string, create: () => Promise<CheckpointStoreSubject>): void {
  describe(`checkpoint store contract: ${name}`, () => {
    let subject: CheckpointStoreSubject;
    let store: CheckpointStore;
    let id: CheckpointId;

    beforeEach(async () => {
      subject = await create();
      store = await subject.open();
      id = newCheckpointId();
    });
    afterEach(() => subject.close());

    describe('stage', () => {
      it('makes an empty directory, and empties it when the id is staged again', async () => {
        const first = await store.stage(id);
        await fill(first);
        const again = await store.stage(id);
        expect(await files.readdir(again.path)).toEqual([]);
        expect(await listed(store)).toEqual([{ id, state: 'staged' }]);
      });

      it('refuses an id that is sealed, and leaves it as it is', async () => {
        const { manifest } = await sealSmall(store, id);
        const failure = await failureOf(store.stage(id));
        expect(failure).toMatchObject({ code: 'conflict', checkpointId: id });
        expect(await store.inspect(id)).toEqual(manifest);
      });

      it('refuses text that is not the id of a checkpoint', async () => {
        for (const text of [
          '../../etc',
          'ckpt_../../../../../../x',
          'ckpt_',
          'sbx_00000000000000000000',
          '',
        ]) {
          const odd = text as CheckpointId;
          for (const call of [() => store.stage(odd), () => store.read(odd), () => store.remove(odd)]) {
            expect(await failureOf(call())).toMatchObject({ code: 'invalid_request' });
          }
          expect(() => store.path(odd)).toThrow(TorporError);
        }
      });
    });

    describe('seal', () => {
      it('lists the content itself, sorted, with the targets of symlinks', async () => {
        const { manifest } = await sealSmall(store, id);
        expect(manifest).toEqual({
          ...manifestFor(id),
          version: 2,
          contents: [{ name: 'workspace', encoding: 'whole', top: ['a.txt', 'dir', 'empty'], layers: [] }],
          entries: [
            { path: 'a.txt', type: 'file', bytes: 5 },
            { path: 'dir', type: 'directory', bytes: 0 },
            { path: 'dir/b.txt', type: 'file', bytes: 4 },
            { path: 'dir/link', type: 'symlink', bytes: 0, target: '../a.txt' },
            { path: 'empty', type: 'directory', bytes: 0 },
          ],
        });
      });

      it('keeps content and manifest for a store that is opened later (invariant 6)', async () => {
        const { manifest } = await sealSmall(store, id);
        const later = await subject.open();
        expect(await later.read(id)).toEqual(manifest);
        expect(await later.inspect(id)).toEqual(manifest);
        expect(await files.readFile(join(later.path(id), 'dir/b.txt'), 'utf8')).toBe('four');
        expect(await listed(later)).toEqual([{ id, state: 'sealed' }]);
      });

      it('changes nothing when repeated, and returns the same manifest (R88)', async () => {
        const staging = await store.stage(id);
        await fill(staging);
        const first = await store.seal(staging, manifestFor(id));
        const second = await store.seal(staging, { ...manifestFor(id), runtime: 'another' });
        expect(second).toEqual(first);
        expect((await store.read(id)).runtime).toBe('process');
      });

      it('returns the same manifest as a later read', async () => {
        const staging = await store.stage(id);
        const needs = { dropped: undefined, date: new Date(0) };
        const { manifest } = await store.seal(staging, { ...manifestFor(id), needs });
        expect(manifest.needs).toEqual({ date: '1970-01-01T00:00:00.000Z' });
        expect(await store.read(id)).toEqual(manifest);
      });

      it('lists the parts that the runtime names, and everything else as the workspace', async () => {
        const staging = await store.stage(id);
        await fill(staging);
        const memory: ContentPart = { name: 'memory', encoding: 'packed', top: ['dir'], layers: [] };
        const { manifest } = await store.seal(staging, { ...manifestFor(id), contents: [memory] });
        const workspace = { name: 'workspace', encoding: 'whole', top: ['a.txt', 'empty'], layers: [] };
        expect(manifest.contents).toEqual([memory, workspace]);
        expect(await store.read(id)).toEqual(manifest);
      });

      it('refuses a checkpoint that was never staged, or was removed meanwhile', async () => {
        const staging = await store.stage(id);
        await store.remove(id);
        const failure = await failureOf(store.seal(staging, manifestFor(id)));
        expect(failure).toMatchObject({ code: 'conflict', checkpointId: id });
        expect(await listed(store)).toEqual([]);
      });

      it('refuses the manifest of another checkpoint', async () => {
        const staging = await store.stage(id);
        const failure = await failureOf(store.seal(staging, manifestFor(newCheckpointId())));
        expect(failure.code).toBe('invalid_request');
        expect(await listed(store)).toEqual([{ id, state: 'staged' }]);
      });

      it('seals nothing when it is aborted, and can be repeated', async () => {
        const staging = await store.stage(id);
        await fill(staging);
        const reason = new TorporError('timeout', 'Too late.');
        await expect(store.seal(staging, manifestFor(id), AbortSignal.abort(reason))).rejects.toBe(reason);
        expect(await listed(store)).toEqual([{ id, state: 'staged' }]);
        await store.seal(staging, manifestFor(id));
        expect(await listed(store)).toEqual([{ id, state: 'sealed' }]);
      });

      it('counts allocated bytes: no holes, and hard links once', async () => {
        const staging = await store.stage(id);
        const sparse = await files.open(join(staging.path, 'sparse'), 'w');
        await sparse.truncate(1 << 30);
        await sparse.close();
        await files.writeFile(join(staging.path, 'one'), Buffer.alloc(1 << 20, 1));
        await files.link(join(staging.path, 'one'), join(staging.path, 'two'));
        const { manifest, bytes } = await store.seal(staging, manifestFor(id));
        const size = 1 << 20;
        expect(manifest.entries).toEqual([
          { path: 'one', type: 'file', bytes: size },
          { path: 'sparse', type: 'file', bytes: 1 << 30 },
          { path: 'two', type: 'file', bytes: size },
        ]);
        expect(bytes).toBeGreaterThanOrEqual(size);
        expect(bytes).toBeLessThan(2 * size);
      });

      it('seals every type of node, and never opens, follows or waits for one', async () => {
        const staging = await store.stage(id);
        const at = (entry: string) => join(staging.path, entry);
        await promisify(execFile)('mkfifo', [at('fifo')]);
        await files.symlink('/nowhere/at/all', at('dangling'));
        await files.symlink('loop', at('loop'));
        await files.symlink('/etc', at('outside'));
        const server = createServer();
        // Made elsewhere and moved, because the path of a socket can have only about a hundred bytes.
        const elsewhere = await files.mkdtemp('/tmp/socket-');
        await new Promise<void>((resolve) => server.listen(join(elsewhere, 'made'), resolve));
        await files.rename(join(elsewhere, 'made'), at('socket'));
        try {
          const { manifest } = await store.seal(staging, manifestFor(id));
          expect(manifest.entries).toEqual([
            { path: 'dangling', type: 'symlink', bytes: 0, target: '/nowhere/at/all' },
            { path: 'fifo', type: 'other', bytes: 0 },
            { path: 'loop', type: 'symlink', bytes: 0, target: 'loop' },
            { path: 'outside', type: 'symlink', bytes: 0, target: '/etc' },
            { path: 'socket', type: 'other', bytes: 0 },
          ]);
          expect(await store.inspect(id)).toEqual(manifest);
          expect(await store.verify(id)).toEqual({ manifest, digested: 0 });
        } finally {
          await new Promise((resolve) => server.close(resolve));
          await files.rm(elsewhere, { recursive: true });
        }
        await store.remove(id);
        expect(await listed(store)).toEqual([]);
      });

      it('seals every name, including names of its own files and names that are not UTF-8', async () => {
        const staging = await store.stage(id);
        const names = [
          'manifest.json',
          'seal.json',
          'parts.jsonl',
          'digests.json',
          'content',
          '__proto__',
          'a\nb',
          '-rf',
          '…',
        ];
        names.push('x'.repeat(255), ' ', '"', '\\');
        for (const entry of names) await files.writeFile(join(staging.path, entry), entry);
        for (const byte of [0x80, 0xff]) {
          const odd = Buffer.concat([Buffer.from(`${staging.path}/odd`), Buffer.of(byte)]);
          await files.writeFile(odd, 'odd');
        }
        const { manifest } = await store.seal(staging, manifestFor(id));
        expect(new Set(manifest.entries.map((entry) => entry.path))).toEqual(
          new Set([...names, 'odd\udc80', 'odd\udcff']),
        );
        await store.verify(id);
        expect((await store.verify(id)).manifest.entries).toHaveLength(names.length + 2);
        await store.remove(id);
        expect(await listed(store)).toEqual([]);
      });
    });

    describe('damage to a checkpoint (R91)', () => {
      const expectAll = async (calls: readonly (() => Promise<unknown>)[], body: Record<string, unknown>) => {
        for (const call of calls) {
          const failure = await failureOf(call());
          expect(failure).toMatchObject({ checkpointId: id, ...body });
          expect(failure.details).toMatchObject({ location: store.location(id) });
        }
      };
      const looks = [() => store.inspect(id), () => store.verify(id)];
      const reads = [() => store.read(id), ...looks];

      it('read, inspect and verify throw checkpoint_missing when the checkpoint does not exist or is only staged', async () => {
        await expectAll(reads, { code: 'checkpoint_missing' });
        await store.stage(id);
        await expectAll(reads, { code: 'checkpoint_missing' });
      });

      it('read, inspect and verify throw checkpoint_missing when the directory was deleted by hand', async () => {
        await sealSmall(store, id);
        await subject.damage.deleteCheckpoint(id);
        await expectAll(reads, { code: 'checkpoint_missing' });
      });

      it('inspect throws checkpoint_missing for an entry that was deleted', async () => {
        await sealSmall(store, id);
        await subject.damage.deleteEntry(id, 'dir/b.txt');
        await expectAll(looks, { code: 'checkpoint_missing', details: { entry: 'dir/b.txt' } });
      });

      it('inspect throws checkpoint_missing when all content was deleted (R94)', async () => {
        await sealSmall(store, id);
        for (const entry of ['a.txt', 'dir', 'empty']) await subject.damage.deleteEntry(id, entry);
        await expectAll(looks, { code: 'checkpoint_missing', details: { entry: 'a.txt' } });
      });

      it('read throws checkpoint_missing when the manifest was deleted', async () => {
        await sealSmall(store, id);
        await subject.damage.deleteManifest(id);
        await expectAll(reads, { code: 'checkpoint_missing', details: { record: 'manifest.json' } });
      });

      it('inspect throws checkpoint_corrupt when an entry was truncated', async () => {
        await sealSmall(store, id);
        await subject.damage.replaceEntry(id, 'a.txt', 'hell');
        const details = { entry: 'a.txt', damage: 'size' };
        await expectAll(looks, { code: 'checkpoint_corrupt', details });
      });

      it('inspect throws checkpoint_corrupt when an entry was added', async () => {
        await sealSmall(store, id);
        await subject.damage.addEntry(id, 'dir/added');
        const details = { entry: 'dir/added', damage: 'unexpected' };
        await expectAll(looks, { code: 'checkpoint_corrupt', details });
      });

      it('verify throws checkpoint_corrupt when a byte was flipped after the digests were recorded', async () => {
        await sealSmall(store, id);
        await store.verify(id);
        await subject.damage.replaceEntry(id, 'a.txt', 'hellO');
        await store.inspect(id);
        const details = { entry: 'a.txt', damage: 'digest' };
        await expectAll([() => store.verify(id)], { code: 'checkpoint_corrupt', details });
      });

      it('read throws checkpoint_corrupt when the manifest was edited, torn or emptied', async () => {
        await sealSmall(store, id);
        const details = { record: 'manifest.json', damage: 'record' };
        const edits = [
          (text: string) => text.replace('"bytes":5', '"bytes":6'),
          (text: string) => `${text} `,
          (text: string) => text.slice(0, text.length / 2),
          () => '',
        ];
        for (const edit of edits) {
          await subject.damage.editManifest(id, edit);
          await expectAll(reads, { code: 'checkpoint_corrupt', details });
        }
      });

      it('verify throws checkpoint_corrupt when the digests were edited or torn, and does not record new ones', async () => {
        await sealSmall(store, id);
        await store.verify(id);
        const details = { record: 'digests.json', damage: 'record' };
        for (const edit of [(text: string) => text.replace('a', 'b'), (text: string) => text.slice(0, 20)]) {
          await subject.damage.editDigests(id, edit);
          await expectAll([() => store.verify(id)], { code: 'checkpoint_corrupt', details });
        }
      });
    });

    describe('rebuild', () => {
      const edits = {
        edited: (text: string) => text.replace('"bytes":5', '"bytes":6'),
        torn: (text: string) => text.slice(0, text.length / 2),
        emptied: () => '',
      };

      it.each(Object.entries(edits))('restores the bytes of a manifest that was %s', async (_, edit) => {
        const { manifest } = await sealSmall(store, id);
        const verified = await store.verify(id);
        await subject.damage.editManifest(id, edit);
        expect((await failureOf(store.read(id))).code).toBe('checkpoint_corrupt');
        expect(await store.rebuild(id)).toEqual(manifest);
        expect(await store.read(id)).toEqual(manifest);
        // Digests refer to the bytes of the manifest.
        expect(await (await subject.open()).verify(id)).toEqual(verified);
      });

      it('restores a manifest that was deleted', async () => {
        const { manifest } = await sealSmall(store, id);
        await subject.damage.deleteManifest(id);
        expect(await store.rebuild(id)).toEqual(manifest);
        expect(await store.inspect(id)).toEqual(manifest);
      });

      it('does not change an undamaged manifest', async () => {
        const { manifest } = await sealSmall(store, id);
        await subject.damage.editParts(id, () => '');
        expect(await store.rebuild(id)).toEqual(manifest);
      });

      it('rejects a part record with a wrong checksum', async () => {
        for (const edit of Object.values(edits)) {
          await sealSmall(store, id);
          await subject.damage.editParts(id, edit);
          await subject.damage.deleteManifest(id);
          const details = { record: 'manifest.json' };
          expect(await failureOf(store.rebuild(id))).toMatchObject({ code: 'checkpoint_missing', details });
          await store.remove(id);
        }
      });

      it('throws checkpoint_missing when the checkpoint does not exist', async () => {
        expect(await failureOf(store.rebuild(id))).toMatchObject({ code: 'checkpoint_missing' });
      });
    });

    describe('inspect and verify with a selection (R91)', () => {
      const dir: ContentSelection = { how: 'only', names: ['dir'] };
      const rest: ContentSelection = { how: 'except', names: ['dir'] };

      it('finds damage to the selected entries, and ignores the others', async () => {
        const { manifest } = await sealSmall(store, id);
        await subject.damage.deleteEntry(id, 'dir/b.txt');
        const missing = { code: 'checkpoint_missing', details: { entry: 'dir/b.txt' } };
        for (const look of ['inspect', 'verify'] as const) {
          expect(await failureOf(store[look](id, undefined, dir))).toMatchObject(missing);
          await store[look](id, undefined, rest);
        }
        expect(await store.inspect(id, undefined, rest)).toEqual(manifest);
        await subject.damage.addEntry(id, 'added');
        const added = { code: 'checkpoint_corrupt', details: { entry: 'added', damage: 'unexpected' } };
        expect(await failureOf(store.inspect(id, undefined, rest))).toMatchObject(added);
      });

      it('fails for every selection when the checkpoint is missing', async () => {
        await sealSmall(store, id);
        await subject.damage.deleteCheckpoint(id);
        for (const selection of [dir, rest]) {
          expect((await failureOf(store.inspect(id, undefined, selection))).code).toBe('checkpoint_missing');
        }
      });

      it('records digests of what it read, and compares only that', async () => {
        await sealSmall(store, id);
        expect((await store.verify(id, undefined, rest)).digested).toBe(5);
        await subject.damage.replaceEntry(id, 'dir/b.txt', 'FOUR');
        // This is the first read, so later reads are compared with it.
        expect((await store.verify(id, undefined, dir)).digested).toBe(4);
        await subject.damage.replaceEntry(id, 'dir/b.txt', 'four');
        const details = { entry: 'dir/b.txt', damage: 'digest' };
        for (const selection of [dir, undefined]) {
          const failure = await failureOf(store.verify(id, undefined, selection));
          expect(failure).toMatchObject({ code: 'checkpoint_corrupt', details });
        }
        await store.verify(id, undefined, rest);
      });
    });

    describe('verify', () => {
      it('records the digest of every file, and says how much it read', async () => {
        const { manifest } = await sealSmall(store, id);
        const verified = await store.verify(id);
        const sha256 = '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824';
        expect(verified.digested).toBe(9);
        expect(verified.manifest.entries[0]).toEqual({ path: 'a.txt', type: 'file', bytes: 5, sha256 });
        expect(await (await subject.open()).verify(id)).toEqual(verified);
        expect(await store.read(id)).toEqual(manifest);
      });

      it('gives two callers at once the same result', async () => {
        await sealSmall(store, id);
        const [first, second] = await Promise.all([store.verify(id), store.verify(id)]);
        expect(second).toEqual(first);
      });

      it('stops when it is aborted, and records nothing', async () => {
        await sealSmall(store, id);
        const reason = new TorporError('timeout', 'Too late.');
        await expect(store.verify(id, AbortSignal.abort(reason))).rejects.toBe(reason);
        await subject.damage.replaceEntry(id, 'a.txt', 'hellO');
        await store.verify(id);
      });

      it('gives way before it reads anything, and stops when that is refused', async () => {
        await sealSmall(store, id);
        const reason = new TorporError('timeout', 'Too late.');
        const refuse = () => Promise.reject(reason);
        await expect(store.verify(id, undefined, undefined, refuse)).rejects.toBe(reason);
        await subject.damage.replaceEntry(id, 'a.txt', 'hellO');
        await store.verify(id);
      });
    });

    describe('remove', () => {
      it('leaves nothing of a checkpoint that was staged, sealed or absent', async () => {
        await store.remove(id);
        await store.stage(id);
        await store.remove(id);
        expect(await listed(store)).toEqual([]);
        await sealSmall(store, id);
        await store.remove(id);
        expect(await listed(store)).toEqual([]);
        expect((await failureOf(store.read(id))).code).toBe('checkpoint_missing');
      });

      it('leaves other checkpoints alone', async () => {
        const other = newCheckpointId();
        const { manifest } = await sealSmall(store, other);
        await sealSmall(store, id);
        await Promise.all([store.remove(id), store.remove(id)]);
        expect(await listed(store)).toEqual([{ id: other, state: 'sealed' }]);
        expect(await store.inspect(other)).toEqual(manifest);
      });

      it('removes a damaged checkpoint', async () => {
        await sealSmall(store, id);
        await subject.damage.deleteManifest(id);
        await store.remove(id);
        expect(await listed(store)).toEqual([]);
      });
    });

    describe('usage', () => {
      it('reports free and total space', async () => {
        const { freeBytes, totalBytes } = await store.usage();
        expect(freeBytes).toBeGreaterThan(0);
        expect(totalBytes).toBeGreaterThanOrEqual(freeBytes);
      });
    });
  });
}
