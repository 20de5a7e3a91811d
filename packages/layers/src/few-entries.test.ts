import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import { type LoopDisk, loopDiskRefusal } from '../testing/loop-disk.ts';
import { readFewEntries } from './few-entries.ts';
import { findEntries } from './file-programs.ts';
import { sealedUsageOf, usageOf } from './layer-usage.ts';

const DISKS: readonly LoopDisk[] = ['xfs', 'ext4'];

describe.each(DISKS)('a sealed layer on %s', (disk) => {
  const why = REFUSAL ?? loopDiskRefusal(disk);
  let world: LayerWorld;
  beforeEach(async ({ skip }) => {
    if (why !== undefined) return skip(why);
    world = await makeLayerWorld({ disk });
  });
  afterEach(async () => {
    if (why === undefined) await world.dispose();
  });

  /** What is on the disk now, as after a power loss. */
  function afterPowerLoss<T>(look: (root: string) => T): T {
    const [file, at] = [join(world.top, 'disk-after'), join(world.top, 'after')];
    fs.mkdirSync(at);
    execFileSync('cp', ['--sparse=always', join(world.top, 'disk'), file]);
    // The original is mounted too, and XFS refuses a second file system with its id.
    execFileSync('mount', ['-o', disk === 'xfs' ? 'loop,nouuid' : 'loop', file, at]);
    try {
      return look(at);
    } finally {
      execFileSync('umount', [at]);
    }
  }

  it.each([
    ['few entries, which are synced one by one', 5, false],
    ['few entries of other kinds, which a program syncs', 5, true],
    ['many entries, which a program syncs', 100, false],
  ])('is durable with %s', async (_, count, hasLink) => {
    const { layers, root } = world;
    const id = await world.bottom((files) => {
      fs.mkdirSync(join(files, 'a', 'b'), { recursive: true });
      for (let i = 0; i < count; i++) fs.writeFileSync(join(files, 'a', 'b', `file-${i}`), `content ${i}`);
      fs.linkSync(join(files, 'a', 'b', 'file-0'), join(files, 'linked'));
      if (hasLink) fs.symlinkSync('a/b/file-0', join(files, 'symbolic'));
    });
    const sealed = await layers.inspect(id);
    const place = layers.path(id).slice(root.length + 1);
    afterPowerLoss((after) => {
      for (let i = 0; i < count; i++)
        expect(fs.readFileSync(join(after, place, 'a', 'b', `file-${i}`), 'utf8')).toBe(`content ${i}`);
      expect(fs.readFileSync(join(after, place, 'linked'), 'utf8')).toBe('content 0');
      if (hasLink) expect(fs.readlinkSync(join(after, place, 'symbolic'))).toBe('a/b/file-0');
      expect(fs.readFileSync(join(after, place, '..', 'seal.json'), 'utf8')).toContain(sealed.nonce);
    });
  });
});

describe('a directory with few entries', () => {
  let top: string;
  beforeEach(() => {
    top = fs.mkdtempSync('/tmp/torpor-few-');
  });
  afterEach(() => fs.rmSync(top, { recursive: true }));

  it('is measured as find measures it, with names that are not text, links, holes and sockets', async () => {
    const name = Buffer.concat([Buffer.from(`${top}/`), Buffer.from([0xff, 0xfe])]);
    fs.mkdirSync(name);
    fs.writeFileSync(Buffer.concat([name, Buffer.from('/file')]), 'x'.repeat(10_000));
    fs.linkSync(Buffer.concat([name, Buffer.from('/file')]), join(top, 'linked'));
    fs.symlinkSync('nowhere', join(top, 'symbolic'));
    fs.writeFileSync(join(top, 'hole'), '');
    fs.truncateSync(join(top, 'hole'), 1_000_000);
    const server = createServer().listen(join(top, 'socket'));
    await new Promise((resolve) => server.once('listening', resolve));
    const few = await readFewEntries(top);
    const found = await findEntries(top, { mayChange: false });
    expect(few).toHaveLength(found.length);
    const sum = found.reduce((blocks, entry) => blocks + entry.blocks, 0);
    const twice = found.find(({ links, kind }) => links === 2 && kind === 'other')?.blocks ?? 0;
    const usage = { bytes: (sum - twice) * 512, entries: found.length };
    expect(await usageOf(top)).toEqual(usage);
    expect(await sealedUsageOf(top, few)).toEqual({ ...usage, entries: usage.entries - 1 });
    expect(await sealedUsageOf(top, undefined)).toEqual({ ...usage, entries: usage.entries - 1 });
    server.close();
  });

  it('is left to a program when it has many entries, or does not exist', async () => {
    for (let i = 0; i < 63; i++) fs.writeFileSync(join(top, String(i)), '');
    expect(await readFewEntries(top)).toHaveLength(64);
    fs.writeFileSync(join(top, '63'), '');
    expect(await readFewEntries(top)).toBeUndefined();
    expect(await readFewEntries(join(top, 'nowhere'))).toBeUndefined();
  });
});
