import { mkdir, mkdtemp, readdir, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findMachineBase, forgetBase, publish, removeUnfinished } from './build-base.mjs';
import { treeDigest } from './tree-digest.mjs';

describe('the root of base on a host', () => {
  let machineWide: string;
  let place: string;
  beforeEach(async () => {
    machineWide = await mkdtemp(join(tmpdir(), 'torpor-base-'));
  });
  afterEach(() => rm(machineWide, { recursive: true }));

  /** A build that has made this root. */
  async function built(word: string): Promise<string> {
    place = await mkdtemp(join(machineWide, '.building-1-'));
    await mkdir(join(place, 'root'));
    await writeFile(join(place, 'root', 'word'), word);
    return treeDigest(join(place, 'root'));
  }

  it('is what the newest build made', async () => {
    await built('first');
    await publish(place, machineWide, undefined);
    const digest = await built('second');
    expect(await publish(place, machineWide, undefined)).toMatchObject({ digest });
    expect(findMachineBase(machineWide)).toMatchObject({ digest });
  });

  it.each([
    ['whose record is empty', 'base.json'],
    ['whose files are cut off', 'root/word'],
  ])('replaces a root of the same content %s', async (_, file) => {
    const digest = await built('same');
    await mkdir(join(machineWide, digest, 'root'), { recursive: true });
    await writeFile(join(machineWide, digest, 'base.json'), JSON.stringify({ digest }));
    await writeFile(join(machineWide, digest, 'root/word'), 'same');
    await writeFile(join(machineWide, digest, file), '');
    const { root } = await publish(place, machineWide, undefined);
    expect(await treeDigest(root)).toBe(digest);
  });

  it('leaves nothing of builds that were killed, also when another process has their number now', async () => {
    const ofAnotherProcess = `.building-${process.ppid}-running`;
    for (const name of [`.building-${process.pid}-killed`, '.building-99999999-killed', ofAnotherProcess])
      await mkdir(join(machineWide, name));
    removeUnfinished(machineWide);
    expect(await readdir(machineWide)).toEqual([ofAnotherProcess]);
  });

  it('is forgotten when it is damaged, and no other root is', async () => {
    const digest = await built('first');
    const base = await publish(place, machineWide, undefined);
    await rm(join(machineWide, 'current'));
    await symlink('another', join(machineWide, 'current'));
    forgetBase(base);
    expect(await readlink(join(machineWide, 'current'))).toBe('another');
    await rm(join(machineWide, 'current'));
    await symlink(digest, join(machineWide, 'current'));
    forgetBase(base);
    expect(findMachineBase(machineWide)).toBeUndefined();
  });
});
