import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { failureOf } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import type { LayerId } from './layer-id.ts';

describe.skipIf(REFUSAL !== undefined)(`verify${REFUSAL === undefined ? '' : ` (${REFUSAL})`}`, () => {
  let world: LayerWorld;
  let id: LayerId;

  /** A layer with entries of every type below its top directory, where `inspect` does not notice changes. */
  beforeEach(async () => {
    world = await makeLayerWorld();
    const below = await world.bottom((files) => {
      fs.mkdirSync(join(files, 'in/old'), { recursive: true });
      fs.mkdirSync(join(files, 'in/gone'), { recursive: true });
      fs.writeFileSync(join(files, 'in/deleted'), '');
    });
    [id = below] = await world.grown([below], (at) => {
      const to = (name: string) => join(at, 'in', name);
      fs.writeFileSync(to('file'), 'content');
      fs.linkSync(to('file'), to('linked'));
      fs.symlinkSync('file', to('link'));
      fs.writeFileSync(to('sparse'), 'start');
      fs.truncateSync(to('sparse'), 20_000_000);
      fs.appendFileSync(to('sparse'), 'end');
      execFileSync('mkfifo', [to('fifo')]);
      fs.renameSync(to('old'), to('renamed'));
      fs.rmSync(to('gone'), { recursive: true });
      fs.mkdirSync(to('gone'));
      fs.rmSync(to('deleted'));
    });
  });
  afterEach(() => world.dispose());

  const inLayer = (name: string) => join(world.layers.path(id), 'in', name);
  /** Keeps the mtime of a file, so that only its content differs. */
  const quietly = (name: string, change: (path: string) => void) => {
    const reference = join(world.top, `time-of-${name}`);
    fs.writeFileSync(reference, '');
    execFileSync('touch', ['-h', '-r', inLayer(name), reference]);
    change(inLayer(name));
    execFileSync('touch', ['-h', '-r', reference, inLayer(name)]);
  };

  it('records the contents, and the next run agrees with the record', async () => {
    const first = await world.layers.verify(id);
    const again = await world.layers.verify(id);
    expect(first).toMatchObject({ isFirst: true, entries: 11 });
    expect(again).toEqual({ ...first, isFirst: false });
  });

  it.each([
    ['a file', 7],
    ['a file with holes', 20_000_000],
  ])('gives way before it reads %s, and stops when that is refused', async (_, size) => {
    const layer = await world.bottom((files) => {
      fs.writeFileSync(join(files, 'one'), 'content');
      fs.truncateSync(join(files, 'one'), size);
    });
    const reason = new Error('The work was aborted.');
    const refuse = () => Promise.reject(reason);
    await expect(world.layers.verify(layer, undefined, 'record', refuse)).rejects.toBe(reason);
    expect((await world.layers.verify(layer)).isFirst).toBe(true);
  });

  it('reads only the allocated blocks of a file with holes', async () => {
    const claims = await world.bottom((files) => {
      fs.writeFileSync(join(files, 'huge'), 'a little');
      fs.truncateSync(join(files, 'huge'), 8 * 2 ** 40);
    });
    const { digested } = await world.layers.verify(claims);
    expect(digested).toBeLessThan(10_000);
    expect((await world.layers.verify(claims)).isFirst).toBe(false);
  });

  const damage: readonly (readonly [string, string, (to: typeof inLayer) => unknown])[] = [
    [
      'other content of the same size',
      'in/file',
      () => quietly('file', (path) => fs.writeFileSync(path, 'CONTENT')),
    ],
    [
      'another byte in a file with holes',
      'in/sparse',
      () => quietly('sparse', (path) => writeAt(path, 20_000_001, 'X')),
    ],
    ['something in a hole', 'in/sparse', () => quietly('sparse', (path) => writeAt(path, 10_000_000, 'X'))],
    ['a file that is gone', 'in/fifo', (to) => fs.rmSync(to('fifo'))],
    ['a file too many', 'in/added', (to) => fs.writeFileSync(to('added'), '')],
    ['another mode', 'in/file', (to) => fs.chmodSync(to('file'), 0o600)],
    ['a file too many with a name of its language', 'in/früh', (to) => fs.writeFileSync(to('früh'), '')],
    ['another owner', 'in/fifo', (to) => fs.chownSync(to('fifo'), 1, 1)],
    ['another time', 'in/fifo', (to) => fs.utimesSync(to('fifo'), 1, 1)],
    ['a link that points elsewhere', 'in/link', () => quietly('link', (path) => relink(path))],
    ['a whiteout that has become a file', 'in/deleted', () => quietly('deleted', (path) => refile(path))],
    ['a directory that is not opaque any more', 'in/gone', () => quietly('gone', (path) => remake(path))],
    [
      'a directory that is not redirected any more',
      'in/renamed',
      () => quietly('renamed', (path) => remake(path)),
    ],
    ['a link that has become a file', 'in/linked', () => quietly('linked', (path) => unlink(path))],
  ];
  const writeAt = (path: string, at: number, text: string) => {
    const file = fs.openSync(path, 'r+');
    fs.writeSync(file, text, at);
    fs.closeSync(file);
  };
  const relink = (path: string) => {
    fs.rmSync(path);
    fs.symlinkSync('fifo', path);
  };
  const refile = (path: string) => {
    fs.rmSync(path);
    fs.writeFileSync(path, '');
  };
  const remake = (path: string) => {
    const { mode } = fs.statSync(path);
    fs.rmdirSync(path);
    fs.mkdirSync(path, mode & 0o7777);
  };
  const unlink = (path: string) => {
    const content = fs.readFileSync(path);
    fs.rmSync(path);
    fs.writeFileSync(path, content);
  };

  it.for(damage)('proves %s and names it: %s', async ([, entry, hurt]) => {
    await world.layers.verify(id);
    quietly('', () => hurt(inLayer));
    expect(await failureOf(world.layers.verify(id))).toMatchObject({
      code: 'checkpoint_corrupt',
      details: { layerId: id, entry },
    });
  });

  it('notices at the first run that an entry went missing since the layer was sealed', async () => {
    fs.rmSync(inLayer('fifo'));
    expect(await failureOf(world.layers.verify(id))).toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it('rejects a contents record with a wrong checksum', async () => {
    await world.layers.verify(id);
    const record = join(world.root, id, 'contents.jsonl');
    fs.writeFileSync(record, fs.readFileSync(record, 'utf8').replace('in/fifo', 'in/fofi'));
    expect(await failureOf(world.layers.verify(id))).toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it('makes a new record after the layer was reopened and sealed again', async () => {
    await world.layers.verify(id);
    await world.layers.reopen(id);
    fs.writeFileSync(inLayer('file'), 'more content');
    await world.layers.seal(id);
    expect(await world.layers.verify(id)).toMatchObject({ isFirst: true });
  });

  it('says checkpoint_missing for a layer that does not exist', async () => {
    await world.layers.remove(id);
    expect(await failureOf(world.layers.verify(id))).toMatchObject({ code: 'checkpoint_missing' });
  });
});
