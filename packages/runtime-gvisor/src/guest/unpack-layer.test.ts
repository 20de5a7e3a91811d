import { link, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { failureOf, unhurried } from '@torpor/engine/testing';
import { ByteReader } from '@torpor/host';
import { type TarEntry, tar } from '@torpor/host/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { UnpackBudget, unpackLayer } from './unpack-root.ts';

/** Only root can set the owners of files. */
describe.skipIf(process.getuid?.() !== 0)('a layer of an image', () => {
  let directory = '';
  let into = '';
  beforeEach(async () => {
    directory = await mkdtemp('/var/tmp/torpor-layer-');
    into = join(directory, 'into');
    await mkdir(into);
    await writeFile(join(directory, 'victim'), 'untouched');
  });
  afterEach(() => rm(directory, { recursive: true }));

  const apply = (...entries: TarEntry[]) =>
    unpackLayer(
      new ByteReader(Readable.from([tar(...entries)])),
      into,
      new UnpackBudget({ bytes: 1_000_000, entries: 100 }),
      unhurried,
    );
  const files = async () => (await readdir(into, { recursive: true })).sort();

  it('removes what its whiteouts name, and nothing of its own', async () => {
    await apply(
      { name: 'a/gone', content: 'x' },
      { name: 'a/stays', content: 'x' },
      { name: 'tree/deep/file', content: 'x' },
      { name: 'b', content: 'below' },
    );
    await apply(
      { name: 'a/.wh.gone' },
      { name: '.wh.tree' },
      { name: '.wh.never-there' },
      { name: 'nowhere/.wh.x' },
      { name: 'b', content: 'own' },
      { name: '.wh.b' },
      { name: '.wh..wh.plnk/1.2' },
    );
    expect(await files()).toEqual(['a', 'a/stays', 'b']);
    expect(await readFile(join(into, 'b'), 'utf8')).toBe('own');
  });

  it('hides a directory of the layers below with an opaque mark, wherever the mark stands', async () => {
    await apply({ name: 'd/old', content: 'x' }, { name: 'd/sub/old', content: 'x' });
    await apply(
      { name: 'd/', type: '5', mode: 0o755 },
      { name: 'd/sub/new', content: 'x' },
      { name: 'd/.wh..wh..opq' },
      { name: 'd/new', content: 'x' },
    );
    expect(await files()).toEqual(['d', 'd/new', 'd/sub', 'd/sub/new']);
  });

  it('replaces files, links and directories of the layers below, with its own owners and modes', async () => {
    await apply(
      { name: 'file', content: 'old', uid: 1 },
      { name: 'link', type: '2', target: 'file' },
      { name: 'dir/inside', content: 'x' },
      { name: 'dir2/inside', content: 'x' },
    );
    await apply(
      { name: 'file/', type: '5', mode: 0o700, uid: 7, gid: 8 },
      { name: 'link', content: 'now a file', uid: 5, gid: 6, mode: 0o640 },
      { name: 'dir', type: '2', target: 'elsewhere' },
      { name: 'dir2/', type: '5', mode: 0o711, uid: 3, gid: 4 },
    );
    expect(await files()).toEqual(['dir', 'dir2', 'dir2/inside', 'file', 'link']);
    expect(await readlink(join(into, 'dir'))).toBe('elsewhere');
    for (const [name, uid, gid, mode] of [
      ['file', 7, 8, 0o700],
      ['link', 5, 6, 0o640],
      ['dir2', 3, 4, 0o711],
    ] as const) {
      const found = await lstat(join(into, name));
      expect([found.uid, found.gid, found.mode & 0o7777]).toEqual([uid, gid, mode]);
    }
  });

  it('never writes into a file that the layers below share', async () => {
    await apply({ name: 'shared', content: 'of both', uid: 1 });
    await link(join(into, 'shared'), join(directory, 'of-another-template'));
    await apply({ name: 'second', type: '1', target: 'shared' }, { name: 'shared', content: 'mine', uid: 2 });
    expect(await readFile(join(directory, 'of-another-template'), 'utf8')).toBe('of both');
    expect((await lstat(join(directory, 'of-another-template'))).uid).toBe(1);
    expect(await readFile(join(into, 'second'), 'utf8')).toBe('of both');
    expect(await readFile(join(into, 'shared'), 'utf8')).toBe('mine');
  });

  it('cannot write or remove anything outside', async () => {
    await apply({ name: 'out', type: '2', target: '..' }, { name: 'abs', type: '2', target: directory });
    for (const entry of [
      { name: '../victim', content: 'x' },
      { name: 'out/victim', content: 'x' },
      { name: 'abs/victim', content: 'x' },
      { name: 'hard', type: '1', target: 'out/victim' },
      { name: 'hard', type: '1', target: '../victim' },
      { name: '../.wh.victim' },
      { name: 'a/.wh...' },
      { name: '.wh.' },
      { name: '.wh.dir/file', content: 'x' },
      { name: 'disk', type: '4' },
      { name: 'pipe', type: '6' },
    ])
      expect(await failureOf(apply(entry)), entry.name).toMatchObject({ code: 'invalid_request' });
    // A whiteout below a link hides nothing.
    await apply({ name: 'out/.wh.victim' }, { name: 'abs/.wh..wh..opq' });
    expect(await readFile(join(directory, 'victim'), 'utf8')).toBe('untouched');
  });
});
