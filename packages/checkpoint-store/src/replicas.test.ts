/** Checkpoints that are stored as objects, lost on this machine, and brought back. */
import { randomBytes } from 'node:crypto';
import {
  appendFile,
  link,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ReplicaObject } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import { sha256Of } from '@torpor/host';
import type { ProgramId } from '@torpor/layers';
import {
  type DataKeys,
  EncryptedObjects,
  makeDataKeys,
  openObjectStore,
  readDataKeys,
  Throttle,
} from '@torpor/object-store';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FailingFs } from '../testing/failing-store-fs.ts';
import { manifestFor, newCheckpointId } from '../testing/index.ts';
import { type LayeredCheckpointStore, openDirectoryStore } from './directory-store.ts';
import { StoreReplicas } from './replicas.ts';
import type { StoreFs } from './store-fs.ts';
import { holdStore } from './store-hold.ts';

const LIMITS = { callMs: 10_000, stallMs: 10_000, minBytesPerSecond: 1 };
const RUNSC: ProgramId = { kind: 'runsc', digest: sha256Of('program') };
const { signal } = new AbortController();
const atOnce = async () => {};

let top: string;
let store: LayeredCheckpointStore;
let replicas: StoreReplicas;
let id: CheckpointId;
let layer: `lay_${string}`;
let objects: ReplicaObject[];
const at = (...names: string[]) => join(top, ...names);
const content = (...names: string[]) => at('local', 'sealed', id, 'content', ...names);

async function open(): Promise<void> {
  const keys = await makeDataKeys(at('data-key'));
  await openWith(keys);
}

/** As a new process would. */
async function openWith(keys: DataKeys, fs?: StoreFs): Promise<void> {
  store = await openDirectoryStore({ root: at('local'), ...(fs === undefined ? {} : { fs }) });
  const address = `file://${at('objects')}`;
  const encrypted = new EncryptedObjects(await openObjectStore(address, {}, LIMITS), keys, new Throttle(0));
  replicas = new StoreReplicas({ root: at('local'), store, objects: encrypted, keys });
}

/** A checkpoint with memory, a workspace of awkward entries, a layer and a program. */
beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-replicas-'));
  await mkdir(at('objects'));
  await open();
  await store.layerStore.programs.add(RUNSC, async (directory) => {
    await writeFile(join(directory, 'runsc'), 'program');
    await writeFile(join(directory, 'version'), 'release-20260701.0');
  });
  id = newCheckpointId();
  const staging = await store.stage(id);
  layer = await store.layerStore.layers.create();
  await writeFile(join(store.layerStore.layers.path(layer), 'in-layer'), 'layered');
  await store.layerStore.claim(id, { layers: [layer], runsc: RUNSC.digest, tools: null });
  const { nonce } = await store.layerStore.layers.seal(layer);
  await mkdir(join(staging.path, 'memory'));
  await writeFile(join(staging.path, 'memory', 'pages'), randomBytes(3_000_000));
  await writeFile(join(staging.path, '-dash'), 'text', { mode: 0o640 });
  await link(join(staging.path, '-dash'), join(staging.path, 'hard link'));
  await writeFile(Buffer.concat([Buffer.from(`${staging.path}/`), Buffer.from([0x6e, 0xff])]), 'not UTF-8');
  await mkdir(join(staging.path, 'deep'));
  await symlink('../-dash', join(staging.path, 'deep', 'symlink'));
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(at('s'), resolve));
  await rename(at('s'), join(staging.path, 'deep', 'socket'));
  server.close();
  await store.seal(staging, {
    ...manifestFor(id),
    parts: { files: true, memory: true },
    needs: { runsc: RUNSC.digest },
    contents: [
      { name: 'memory', encoding: 'packed', top: ['memory'], layers: [] },
      { name: 'layers', encoding: 'whole', top: [], layers: [{ id: layer, nonce, owner: id }] },
    ],
  });
  objects = await uploadAll();
});
afterEach(() => rm(top, { recursive: true }));

async function uploadAll(): Promise<ReplicaObject[]> {
  const stored: ReplicaObject[] = [];
  for (const part of await replicas.partsOf(id, signal)) {
    const key = replicas.newKey(part);
    stored.push({ ...part, key, ...(await replicas.upload(id, part, key, signal, atOnce)) });
  }
  return stored;
}

const fetchKinds = async (look: 'presence' | 'contents' = 'presence') =>
  (await replicas.fetch(id, objects, look, signal)).map(({ kind }) => kind).sort();

describe('a replicated checkpoint', () => {
  it('consists of one object for each part, and is not changed by a fetch when nothing is lost', async () => {
    const kinds = ['layer', 'memory', 'program', 'record', 'workspace'];
    expect(objects.map(({ kind }) => kind).sort()).toEqual(kinds);
    expect(await fetchKinds()).toEqual([]);
    expect(await fetchKinds('contents')).toEqual([]);
  });

  it('comes back whole after everything of it was lost on this machine', async () => {
    const before = await store.verify(id);
    for (const name of ['sealed', 'layers', 'programs', 'references', 'staging', 'removing'])
      await rm(at('local', name), { recursive: true });
    store = await openDirectoryStore({ root: at('local') });
    const { url } = replicas;
    const keys = await readDataKeys(at('data-key'));
    if (keys === undefined) throw new Error('The data keys are gone.');
    const encrypted = new EncryptedObjects(await openObjectStore(url, {}, LIMITS), keys, new Throttle(0));
    replicas = new StoreReplicas({ root: at('local'), store, objects: encrypted, keys });

    expect(await fetchKinds()).toEqual(['layer', 'memory', 'program', 'record', 'workspace']);
    expect(await store.verify(id)).toEqual(before);
    expect(store.layerStore.hasClaim(id)).toBe(true);
    expect(await readFile(join(store.layerStore.layers.path(layer), 'in-layer'), 'utf8')).toBe('layered');
    await store.layerStore.programs.verify(RUNSC);
    const [file, other] = [await lstat(content('-dash')), await lstat(content('hard link'))];
    expect([file.ino, file.mode & 0o777]).toEqual([other.ino, 0o640]);
    expect((await lstat(content('deep', 'socket'))).isSocket()).toBe(true);
    expect(await readdir(at('local', 'staging'))).toEqual([]);
  });

  it.each([
    ['memory', 'memory', () => rm(content('memory'), { recursive: true })],
    ['a file of the workspace', 'workspace', () => appendFile(content('-dash'), 'more')],
    ['the content directory', 'memory,workspace', () => rm(content(), { recursive: true })],
    ['the layer', 'layer', () => rm(at('local', 'layers', layer), { recursive: true })],
    ['the seal of the layer', 'layer', () => rm(at('local', 'layers', layer, 'seal.json'))],
    ['the program', 'program', () => rm(at('local', 'programs', 'runsc', RUNSC.digest), { recursive: true })],
  ])('gets back %s alone when only that is lost', async (_, kinds, lose) => {
    await lose();
    expect((await fetchKinds()).join()).toBe(kinds);
    await store.verify(id);
    await store.layerStore.programs.verify(RUNSC);
  });

  it('brings the page layers of its memory with it', async () => {
    const { layers } = store.layerStore;
    id = newCheckpointId();
    const staging = await store.stage(id);
    await mkdir(join(staging.path, 'memory'));
    const pages = await layers.create();
    await writeFile(join(layers.path(pages), 'pages'), randomBytes(10_000));
    const { nonce } = await layers.seal(pages, signal, { recordsSizes: true });
    await store.layerStore.claim(id, { layers: [pages], runsc: null, tools: null });
    const memory = { name: 'memory', encoding: 'packed', top: ['memory'] } as const;
    await store.seal(staging, {
      ...manifestFor(id),
      contents: [{ ...memory, layers: [{ id: pages, nonce, owner: id }] }],
    });
    const before = await store.verify(id);
    objects = await uploadAll();
    for (const name of ['sealed', 'layers', 'references']) await rm(at('local', name), { recursive: true });
    const keys = await readDataKeys(at('data-key'));
    if (keys === undefined) throw new Error('The data keys are gone.');
    await openWith(keys);

    expect(await fetchKinds()).toEqual(['layer', 'memory', 'record']);
    expect(await store.verify(id)).toEqual(before);

    await rm(at('local', 'layers', pages), { recursive: true });
    expect(await fetchKinds()).toEqual(['layer']);
    expect(await store.verify(id)).toEqual(before);
  });

  it('comes back when it has nothing but layers, as one of files alone', async () => {
    const [owner, source] = [id, layer];
    id = newCheckpointId();
    const staging = await store.stage(id);
    await store.layerStore.claim(id, { layers: [source], runsc: null, tools: null });
    const { nonce } = await store.layerStore.layers.inspect(source);
    const layers = [{ id: source, nonce, owner }];
    const contents = [{ name: 'layers' as const, encoding: 'whole' as const, top: [], layers }];
    await store.seal(staging, { ...manifestFor(id), contents });
    objects = await uploadAll();
    await rm(at('local', 'sealed', id), { recursive: true });

    expect(await fetchKinds()).toEqual(['record']);
    await store.verify(id);
    expect(await fetchKinds()).toEqual([]);
  });

  it('gets back contents that were changed without a change of size', async () => {
    const bytes = await readFile(content('memory', 'pages'));
    await writeFile(content('memory', 'pages'), Buffer.alloc(bytes.length));
    expect(await fetchKinds('presence')).toEqual([]);
    expect(await fetchKinds('contents')).toEqual(['memory']);
    expect((await readFile(content('memory', 'pages'))).equals(bytes)).toBe(true);
  });

  it.each([
    ['changed', 'checkpoint_corrupt', (path: string) => appendFile(path, 'x')],
    ['missing', 'checkpoint_missing', (path: string) => rm(path)],
  ])('keeps what this machine has when an object is %s in the store', async (_, code, damage) => {
    const [workspace] = objects.filter(({ kind }) => kind === 'workspace');
    await damage(at('objects', workspace?.key ?? ''));
    await rm(content('deep'), { recursive: true });
    const failure = await failureOf(replicas.fetch(id, objects, 'presence', signal));
    expect(failure.code).toBe(code);
    expect(await readFile(content('-dash'), 'utf8')).toBe('text');
    expect(await readdir(at('local', 'staging'))).toEqual([]);
  });

  it('is not uploaded when a byte of it has changed since it was verified', async () => {
    await writeFile(content('memory', 'pages'), Buffer.alloc(3_000_000));
    const part = { kind: 'record', subject: id } as const;
    const failure = await failureOf(replicas.upload(id, part, replicas.newKey(part), signal, atOnce));
    expect(failure.code).toBe('checkpoint_corrupt');
  });

  it('is uploaded piece by piece, and gives way before each', async () => {
    for (const part of await replicas.partsOf(id, signal)) {
      const asked = Promise.withResolvers<void>();
      const passed = Promise.withResolvers<void>();
      let pieces = 0;
      const key = replicas.newKey(part);
      const uploading = replicas.upload(id, part, key, signal, () => {
        pieces++;
        asked.resolve();
        return passed.promise;
      });
      await asked.promise;
      expect(await replicas.has(key, signal)).toBe(false);
      passed.resolve();
      const { bytes } = await uploading;
      expect(await replicas.has(key, signal)).toBe(true);
      expect(pieces).toBeGreaterThan(bytes / 1024 ** 2);
    }
  });

  it('is not uploaded when the upload is aborted while it gives way', async () => {
    const part = { kind: 'memory', subject: id } as const;
    const key = replicas.newKey(part);
    const reason = new Error('The server stops.');
    await expect(replicas.upload(id, part, key, signal, () => Promise.reject(reason))).rejects.toBe(reason);
    expect(await replicas.has(key, signal)).toBe(false);
  });

  it('is known to be missing when the store has lost one of its objects', async () => {
    await replicas.requirePresent(objects, signal);
    await replicas.delete(objects[1]?.key ?? '', signal);
    const failure = await failureOf(replicas.requirePresent(objects, signal));
    expect(failure.code).toBe('checkpoint_missing');
  });
});

describe('an eviction', () => {
  const names = async () =>
    (await readdir(at('local'), { recursive: true })).filter((name) => name.includes(id));
  const keysOfTest = async () => (await readDataKeys(at('data-key'))) as DataKeys;
  let mounted: Set<`lay_${string}`>;

  async function reopen(fs?: StoreFs): Promise<void> {
    await openWith(await keysOfTest(), fs);
    store.layerStore.addUsageSource(async () => mounted);
  }

  beforeEach(() => {
    mounted = new Set();
    store.layerStore.addUsageSource(async () => mounted);
  });

  it('removes the content, the claim and the layers of a checkpoint, and a fetch brings everything back', async () => {
    const before = await store.copies();
    expect(before).toMatchObject({ sealed: [id], leftovers: [] });
    expect(before.bytes).toBeGreaterThan(3_000_000);
    await replicas.evict(id);
    expect(await names()).toEqual([]);
    expect(await store.copies()).toEqual({ bytes: 0, sealed: [], leftovers: [] });
    expect(await store.has(id)).toBe(false);
    expect(await fetchKinds()).toEqual(['layer', 'memory', 'record', 'workspace']);
    await store.verify(id, signal);
    expect(store.layerStore.hasClaim(id)).toBe(true);
    expect((await store.copies()).bytes).toBeGreaterThan(3_000_000);
  });

  it('keeps a layer that another checkpoint claims', async () => {
    const claim = { layers: [layer], runsc: null, tools: null };
    await store.layerStore.claim(newCheckpointId(), claim);
    await replicas.evict(id);
    expect(await fetchKinds()).toEqual(['memory', 'record', 'workspace']);
  });

  it('keeps a layer that an instance has mounted', async () => {
    mounted.add(layer);
    await replicas.evict(id);
    expect(await fetchKinds()).toEqual(['memory', 'record', 'workspace']);
  });

  it('is not made while a backup holds the store', async () => {
    const hold = await holdStore(at('local'));
    expect((await failureOf(replicas.evict(id))).code).toBe('transitioning');
    expect(await store.has(id)).toBe(true);
    await hold.release();
  });

  it('goes by the last use, which a restart does not forget', async () => {
    expect(await store.lastUse(id)).toBeGreaterThan(0);
    await store.recordUse(id, 5_000);
    await reopen();
    expect(await store.lastUse(id)).toBe(5_000);
    await replicas.evict(id);
    expect(await store.lastUse(id)).toBe(0);
    await store.recordUse(id, 5_000);
  });

  it('that a crash interrupts at any step is finished later, or undone by a fetch', async () => {
    let crashes = 0;
    for (let through = false; !through; crashes++) {
      let first = Number.POSITIVE_INFINITY;
      let changes = 0;
      const failing = new FailingFs(({ index, name }) => {
        if (index < first || (name !== 'rename' && name !== 'rm')) return undefined;
        return changes++ === crashes ? 'crash' : undefined;
      });
      await reopen(failing.fs);
      first = failing.calls.length;
      through = await Promise.race([replicas.evict(id).then(() => true), failing.crashed.then(() => false)]);
      await failing.close();
      await reopen();
      const { sealed, leftovers } = await store.copies();
      // Whatever is left is listed, so that the next round finds it.
      if ((await names()).length > 0) expect([...sealed, ...leftovers]).toContain(id);
      if (crashes % 2 === 0) {
        await replicas.evict(id);
        expect(await names()).toEqual([]);
      }
      await replicas.fetch(id, objects, 'presence', signal);
      await store.verify(id, signal);
      const file = join(store.layerStore.layers.path(layer), 'in-layer');
      expect(await readFile(file, 'utf8')).toBe('layered');
    }
    expect(crashes).toBeGreaterThan(2);
  }, 30_000);
});
