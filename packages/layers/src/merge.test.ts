import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { join } from 'node:path';
import { failureOf } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import { viewOf } from '../testing/tree-view.ts';
import type { LayerId } from './layer-id.ts';
import { mergeFiles } from './merge.ts';

describe.skipIf(REFUSAL !== undefined)(`merge${REFUSAL === undefined ? '' : ` (${REFUSAL})`}`, () => {
  let world: LayerWorld;
  let stack: readonly LayerId[];

  beforeEach(async () => {
    world = await makeLayerWorld();
    stack = [await world.bottom((files) => fs.writeFileSync(join(files, 'bottom'), 'b'))];
    for (const name of ['one', 'two']) {
      stack = await world.grown(stack, (at) => {
        fs.mkdirSync(join(at, name));
        fs.writeFileSync(join(at, name, 'file'), name);
      });
    }
  });
  afterEach(() => world.dispose());

  const names = () => fs.readdirSync(world.root).sort();

  it('leaves the old layers usable, and stays usable without them', async () => {
    for (const id of stack) await world.layers.verify(id);
    const before = await world.shown(stack, (at) => viewOf(at));
    const merged = await world.layers.merge(stack);
    for (const id of stack) expect(await world.layers.verify(id)).toMatchObject({ isFirst: false });
    expect(await world.shown(stack, (at) => viewOf(at))).toEqual(before);
    for (const id of stack) await world.layers.remove(id);
    const empty = await world.bottom(() => {});
    expect(await world.shown([merged, empty], (at) => viewOf(at))).toEqual(before);
    expect(names()).toEqual([merged, empty].sort());
  });

  it('takes no space for files, however large they are', async () => {
    stack = await world.grown(stack, (at) => fs.writeFileSync(join(at, 'big'), Buffer.alloc(1 << 24, 1)));
    const room = () => {
      execFileSync('sync', ['-f', world.root]);
      return Number(execFileSync('du', ['-s', '-B1', world.root], { encoding: 'utf8' }).split('\t')[0]);
    };
    const before = room();
    await world.layers.merge(stack);
    expect(room() - before).toBeLessThan(1 << 20);
  });

  it('copies files that cannot be linked, and keeps the links among the copies', async () => {
    // Two file systems simulate a file with too many links: `link` fails in both cases.
    const elsewhere = join(world.top, 'elsewhere');
    fs.mkdirSync(elsewhere);
    execFileSync('mount', ['-t', 'tmpfs', 'none', elsewhere]);
    try {
      const source = join(elsewhere, 'fs');
      fs.mkdirSync(source);
      fs.writeFileSync(join(source, 'one'), 'linked', { mode: 0o640 });
      for (const name of ['two', 'three']) fs.linkSync(join(source, 'one'), join(source, name));
      fs.symlinkSync('one', join(source, 'link'));
      execFileSync('mknod', [join(source, 'whiteout'), 'c', '0', '0']);
      execFileSync('touch', ['-d', '2021-03-04 05:06:07.123456789', join(source, 'one')]);
      const target = join(world.top, 'target');
      await mergeFiles([source, world.layers.path(stack[0] as LayerId)], target);
      const copies = ['one', 'two', 'three'].map((name) =>
        fs.lstatSync(join(target, name), { bigint: true }),
      );
      expect(new Set(copies.map(({ ino }) => ino)).size).toBe(1);
      expect(copies[0]).toMatchObject({ nlink: 3n, mode: 0o100640n });
      expect((copies[0]?.mtimeNs ?? 0n) % 1_000_000_000n).toBe(123456789n);
      expect(fs.readlinkSync(join(target, 'link'))).toBe('one');
      expect(fs.lstatSync(join(target, 'whiteout')).rdev).toBe(0);
    } finally {
      execFileSync('umount', [elsewhere]);
    }
  });

  it('leaves nothing behind when it is aborted', async () => {
    const before = names();
    const giveUp = new AbortController();
    const merging = world.layers.merge(stack, giveUp.signal);
    giveUp.abort(new Error('never mind'));
    await expect(merging).rejects.toThrow('never mind');
    expect(names()).toEqual(before);
  });

  it('leaves after a crash a directory that is listed as unfinished, is not a layer and can be removed', async () => {
    const merged = await world.layers.merge(stack);
    // The directories that a merge leaves when it crashes before its last step, and in the middle.
    fs.renameSync(join(world.root, merged), join(world.root, `making-${merged}`));
    const half = 'lay_bbbbbbbbbbbbbbbbbbbb';
    fs.mkdirSync(join(world.root, `making-${half}`, 'fs', 'half'), { recursive: true });

    const found = [];
    for await (const layer of world.layers.list()) if (layer.state === 'creating') found.push(layer.id);
    expect(found.sort()).toEqual([half, merged].sort());
    for (const id of [merged, half] as const) {
      expect(await failureOf(world.layers.inspect(id))).toMatchObject({ code: 'checkpoint_missing' });
      await world.layers.remove(id);
    }
    expect(names()).toEqual([...stack].sort());
    for (const id of stack) await world.layers.inspect(id);
  });

  it('refuses a stack with a damaged, a missing or an open layer', async () => {
    const [top, middle] = stack as readonly [LayerId, LayerId];
    fs.rmSync(join(world.layers.path(middle), 'one'), { recursive: true });
    expect((await failureOf(world.layers.merge(stack))).code).toBe('checkpoint_corrupt');
    await world.layers.remove(middle);
    expect((await failureOf(world.layers.merge([top, middle]))).code).toBe('checkpoint_missing');
    expect((await failureOf(world.layers.merge([top, await world.layers.create()]))).code).toBe(
      'checkpoint_corrupt',
    );
    expect((await failureOf(world.layers.merge([top]))).code).toBe('invalid_request');
  });

  it('throws storage_full when there is no space, and leaves nothing behind', async () => {
    const small = await makeLayerWorld({ disk: { tmpfs: 'size=1m,nr_inodes=200' } });
    try {
      const fill = (files: string, start: string) => {
        for (let i = 0; i < 60; i++) fs.mkdirSync(join(files, `${start}${i}`));
      };
      const layers = [
        await small.bottom((files) => fill(files, 'a')),
        await small.bottom((files) => fill(files, 'b')),
      ];
      expect(await failureOf(small.layers.merge(layers))).toMatchObject({ code: 'storage_full' });
      expect(fs.readdirSync(small.root).sort()).toEqual(layers.sort());
    } finally {
      await small.dispose();
    }
  });
});
