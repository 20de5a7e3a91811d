import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { systemClock } from '@torpor/engine';
import { failureOf } from '@torpor/engine/testing';
import { type TarEntry, tar } from '@torpor/host/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sourcesIn } from './archive-sources.ts';
import { FileStore, type FindRemoteUpload } from './file-store.ts';

const HASH = 'a'.repeat(64);
const DAY = 86_400_000;
const signal = new AbortController().signal;
let directory: string;
let store: FileStore;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-files-'));
  store = storeWith({});
});
afterEach(() => rm(directory, { recursive: true }));

function storeWith(settings: { fileBytes?: number; fileTotalBytes?: number }): FileStore {
  const limits = { fileBytes: 1_000_000, fileTotalBytes: 4_000_000, fileKeepMs: 7 * DAY, ...settings };
  return new FileStore({ directory, clock: systemClock, settings: limits });
}

async function* pieces(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += 1_000) yield bytes.subarray(at, at + 1_000);
}
const send = (bytes: Buffer, hash = HASH, org = 'org') => store.receive(org, hash, pieces(bytes), signal);
const archive = (...entries: TarEntry[]) => gzipSync(tar(...entries));
const stored = async () =>
  (await readdir(directory, { recursive: true })).filter((name) => name.includes('.'));

async function copied(source: string) {
  const { items, isDirectory } = sourcesIn(await store.open('org', HASH, signal), source)[0] ?? { items: [] };
  const contents = [];
  for (const { path, type, target, content } of items)
    contents.push([path, type, target ?? (content === undefined ? '' : String(await buffer(content())))]);
  return { isDirectory, contents };
}

describe('an uploaded archive', () => {
  it('gives copy steps the file, the directory or the part of a pattern that they name', async () => {
    await send(
      archive(
        { name: 'src/', type: '5' },
        { name: 'src/b', content: 'B' },
        { name: 'src/a', content: 'A' },
        { name: 'src/hard', type: '1', target: 'src/b' },
        { name: 'src/soft', type: '2', target: '/etc/passwd' },
        { name: 'other', content: '' },
      ),
    );
    const below = [
      ['a', 'file', 'A'],
      ['b', 'file', 'B'],
      ['hard', 'file', 'B'],
      ['soft', 'link', '/etc/passwd'],
    ];
    expect(await copied('./src/')).toEqual({ isDirectory: true, contents: below });
    expect(await copied('src/**/*.txt')).toEqual({ isDirectory: true, contents: below });
    expect(await copied('src/b')).toEqual({ isDirectory: false, contents: [['b', 'file', 'B']] });
    expect((await copied('.')).contents).toHaveLength(6);
    await expect(copied('no-such')).rejects.toMatchObject({ code: 'invalid_request' });
  });

  it.each<[string, TarEntry[], string]>([
    ['a path with ..', [{ name: 'a/../../x', content: 'x' }], 'a path with ".."'],
    ['an absolute path', [{ name: '/etc/passwd', content: 'x' }], 'an absolute path'],
    ['a device', [{ name: 'disk', type: '4' }], 'a device'],
    ['a named pipe', [{ name: 'pipe', type: '6' }], 'a named pipe'],
    [
      'a path below a link',
      [
        { name: 'out', type: '2', target: '/etc' },
        { name: 'out/passwd', content: 'x' },
      ],
      'not a directory',
    ],
    ['a hard link to a file outside', [{ name: 'a', type: '1', target: '/etc/shadow' }], 'an absolute path'],
    ['a hard link to nothing', [{ name: 'a', type: '1', target: 'b' }], 'not in it'],
    ['a name that is not UTF-8', [{ name: 'caf\xe9', content: 'x' }], 'not UTF-8'],
  ])('with %s is refused and leaves nothing', async (_, entries, why) => {
    expect(await failureOf(send(archive(...entries)))).toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining(why),
    });
    expect(await stored()).toEqual([]);
  });

  it('with a time that is none is accepted', async () => {
    const times = ['soon', '-5', '1e99'].map((mtime, i) => ({ name: `f${i}`, records: { mtime } }));
    await send(archive(...times));
    const { entries } = await store.open('org', HASH, signal);
    expect(entries.map(({ mtime }) => mtime)).toEqual([0, 0, 8 ** 11 - 1]);
  });

  it('whose client goes away leaves nothing', async () => {
    const broken = async function* () {
      yield archive({ name: 'a', content: 'A' }).subarray(0, 40);
      throw Object.assign(new Error('gone'), { code: 'ECONNRESET' });
    };
    expect(await failureOf(store.receive('org', HASH, broken(), signal))).toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining('interrupted'),
    });
    expect(await stored()).toEqual([]);
  });

  it('that is cut off, is no archive, or is damaged is refused and leaves nothing', async () => {
    const whole = archive({ name: 'a', content: randomBytes(5_000).toString('hex') });
    for (const bytes of [
      whole.subarray(0, 3_000),
      Buffer.from('not a tar'),
      Buffer.alloc(0),
      Buffer.concat([whole.subarray(0, 100), Buffer.alloc(100), whole.subarray(200)]),
    ])
      expect(await failureOf(send(bytes))).toMatchObject({ code: 'invalid_request' });
    expect(await stored()).toEqual([]);
  });

  it('that is too large, also only after decompression, is refused', async () => {
    store = storeWith({ fileBytes: 50_000 });
    const bomb = archive({ name: 'zeros', content: '\0'.repeat(1_000_000) });
    expect(bomb.length).toBeLessThan(5_000);
    for (const bytes of [bomb, tar({ name: 'plain', content: randomBytes(60_000) })])
      expect(await failureOf(send(bytes))).toMatchObject({
        code: 'invalid_request',
        message: expect.stringContaining('50000 bytes'),
      });
    expect(await stored()).toEqual([]);
  });

  it('takes the place of uploads that were not used for long, and of no others', async () => {
    store = storeWith({ fileBytes: 50_000, fileTotalBytes: 100_000 });
    const other = 'b'.repeat(64);
    const some = () => archive({ name: 'a', content: randomBytes(20_000).toString('hex') });
    await send(some());
    await send(some(), other);
    expect(await failureOf(send(some(), 'c'.repeat(64)))).toMatchObject({ code: 'quota_exceeded' });
    expect([await store.has('org', HASH), await store.has('org', other)]).toEqual([true, true]);
    const [record = ''] = (await stored()).filter((name) => name.endsWith(`${HASH}.json`));
    await utimes(join(directory, record), new Date(0), new Date(Date.now() - DAY));
    await send(some(), 'c'.repeat(64));
    expect([await store.has('org', HASH), await store.has('org', other)]).toEqual([false, true]);
  });

  it('belongs to its organisation, expires, and is not used when its bytes have changed', async () => {
    await send(archive({ name: 'a', content: 'A' }));
    expect([await store.has('org', HASH), await store.has('another', HASH)]).toEqual([true, false]);
    await expect(store.has('org', '../x')).rejects.toMatchObject({ code: 'invalid_request' });
    const [file = ''] = (await stored()).filter((name) => name.endsWith('.tar'));
    await writeFile(join(directory, file), Buffer.alloc(2_048, 'x'));
    await expect(store.open('org', HASH, signal)).rejects.toMatchObject({ code: 'not_found' });

    await send(archive({ name: 'a', content: 'B' }));
    await store.expire();
    expect(await store.has('org', HASH)).toBe(true);
    for (const name of await stored()) await utimes(join(directory, name), new Date(0), new Date(0));
    await store.expire();
    expect(await stored()).toEqual([]);
  });
});

describe('an upload that another node has', () => {
  let other: string;
  beforeEach(async () => {
    other = await mkdtemp(join(tmpdir(), 'torpor-files-'));
  });
  afterEach(() => rm(other, { recursive: true }));
  const settings = { fileBytes: 1_000_000, fileTotalBytes: 4_000_000, fileKeepMs: 7 * DAY };
  const asking = (elsewhere: FindRemoteUpload) =>
    new FileStore({ directory: other, clock: systemClock, settings, elsewhere });

  it('is found, and fetched when it is used', async () => {
    await send(archive({ name: 'a', content: 'A' }));
    const node = asking((org, hash) => store.own(org, hash));
    expect([await node.has('org', HASH), await node.has('another', HASH)]).toEqual([true, false]);
    expect(await node.own('org', HASH)).toBeUndefined();
    const { entries } = await node.open('org', HASH, signal);
    expect(entries.map(({ path }) => path)).toEqual(['a']);
    const kept = await node.own('org', HASH);
    kept?.content.destroy();
    expect(kept).toBeDefined();
  });

  it('is missing when it arrives with other bytes', async () => {
    await send(archive({ name: 'a', content: 'A' }));
    const node = asking(async (org, hash) => {
      const found = await store.own(org, hash);
      return found && { ...found, sha256: 'b'.repeat(64) };
    });
    await expect(node.open('org', HASH, signal)).rejects.toMatchObject({ code: 'not_found' });
    expect(await node.own('org', HASH)).toBeUndefined();
  });
});
