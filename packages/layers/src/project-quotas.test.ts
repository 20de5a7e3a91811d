/** What the kernel does with the project of a layer, on file systems with project quotas. */
import { execFileSync } from 'node:child_process';
import * as fs from 'node:fs';
import { mkdtemp, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LayerWorld, makeLayerWorld, REFUSAL } from '../testing/layer-world.ts';
import { type LoopDisk, loopDiskRefusal } from '../testing/loop-disk.ts';
import type { LayerId } from './layer-id.ts';
import { findProjectQuotas, type ProjectQuotas, parseUsage, randomProject } from './project-quotas.ts';

const MIB = 1024 * 1024;
const LIMIT = { bytes: 20 * MIB, entries: 200 };
/** Node has no name for EDQUOT, which ext4 says. */
const REFUSED = /ENOSPC|EDQUOT|UNKNOWN|Unknown system error/;
const DISKS: readonly LoopDisk[] = ['xfs with project quotas', 'ext4 with project quotas'];

describe('project quotas', () => {
  let top: string;
  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-quotas-'));
  });
  afterEach(() => rm(top, { recursive: true }));

  const mounted = (at: string, type: string, options: string) =>
    `30 1 7:0 / ${at} rw,relatime - ${type} /dev/loop0 ${options}\n`;

  it.each([
    ['of a file system that has none', 'tmpfs', 'rw', 'tmpfs has no project quotas'],
    ['that are not switched on', 'xfs', 'rw,noquota', 'is not mounted with prjquota'],
    ['that only count', 'xfs', 'rw,pqnoenforce', 'is not mounted with prjquota'],
  ])('%s are not used, with the reason', async (_, type, options, why) => {
    const table = mounted('/', 'ext4', 'rw,prjquota') + mounted(top, type, options);
    const found = await findProjectQuotas(top, async () => table);
    expect(found).toMatchObject({ quotas: null, why: expect.stringContaining(why) });
  });

  it('that the mount table promises and the kernel does not have are not used, and leave nothing', async () => {
    const found = await findProjectQuotas(top, async () => mounted(top, 'ext4', 'rw,prjquota'));
    expect(found.quotas).toBeNull();
    expect(fs.readdirSync(top)).toEqual([]);
  });

  it('of a directory that is not there are not used', async () => {
    expect(await findProjectQuotas(join(top, 'none'))).toMatchObject({
      why: expect.stringContaining('ENOENT'),
    });
  });

  it('are read from the report of xfs_quota', () => {
    const line = '/dev/loop0   3  0  10240   00 [--------]   4  0   300   00 [--------] /tmp/disk\n';
    expect(parseUsage(line)).toEqual({ bytes: 3072, entries: 4 });
    expect(parseUsage('')).toEqual({ bytes: 0, entries: 0 });
  });
});

describe.each(
  DISKS.map((disk) => {
    const why = REFUSAL ?? loopDiskRefusal(disk);
    return { disk, why, what: disk + (why ? ` (${why})` : '') };
  }),
)('the project of a layer on $what', ({ disk, why }) => {
  let world: LayerWorld;
  let quotas: ProjectQuotas;
  let template: LayerId;
  let upper: LayerId;
  let at: string;
  let project: number;

  beforeEach(async ({ skip }) => {
    if (why !== undefined) return skip(why);
    world = await makeLayerWorld({ disk });
    const found = await world.layers.projectQuotas();
    if (found.quotas === null) throw new Error(found.why);
    quotas = found.quotas;
    template = await world.bottom((files) => {
      fs.mkdirSync(join(files, 'directory'));
      fs.writeFileSync(join(files, 'directory', 'file'), 'from the template');
    });
    upper = await world.layers.create();
    at = await mounted([template], upper);
    project = await joined(upper);
  });
  afterEach(async () => {
    if (why !== undefined) return;
    await world.layers.unmount(at);
    await world.dispose();
  });

  async function mounted(stack: readonly LayerId[], top: LayerId): Promise<string> {
    const place = join(world.top, `at-${top}`);
    fs.mkdirSync(place);
    await world.layers.mount(place, stack, top);
    return place;
  }
  async function joined(layer: LayerId, id = randomProject()): Promise<number> {
    await quotas.assign(id, await world.layers.directories(layer));
    await quotas.limit(id, LIMIT);
    return id;
  }
  const write = (file: string, megabytes: number) => fs.writeFileSync(file, Buffer.alloc(megabytes * MIB, 1));
  const used = async () => {
    execFileSync('sync', ['-f', world.root]);
    return (await quotas.usage(project)).bytes;
  };

  it('limits bytes and inodes, and shows the limit as the size of the disk', async () => {
    const { blocks, bsize, files } = await statfs(at);
    expect([blocks * bsize, files]).toEqual([LIMIT.bytes, LIMIT.entries]);

    expect(() => write(join(at, 'much'), 30)).toThrow(REFUSED);
    fs.rmSync(join(at, 'much'));
    const many = () => {
      for (let i = 0; i < 300; i++) fs.writeFileSync(join(at, `f${i}`), '');
    };
    expect(many).toThrow(REFUSED);
    expect(fs.readdirSync(at).length).toBeLessThan(LIMIT.entries);
  });

  it('counts deleted files that are open', async () => {
    const file = fs.openSync(join(at, 'deleted'), 'w');
    fs.rmSync(join(at, 'deleted'));
    fs.writeSync(file, Buffer.alloc(5 * MIB, 1));
    expect(await used()).toBeGreaterThanOrEqual(5 * MIB);
    const { blocks, bfree, bsize } = await statfs(at);
    expect((blocks - bfree) * bsize).toBe(await used());
    fs.closeSync(file);
    expect(await used()).toBeLessThan(MIB);
  });

  it('leaves renames and hard links in the sandbox as they are', () => {
    fs.renameSync(join(at, 'directory'), join(at, 'renamed'));
    fs.linkSync(join(at, 'renamed', 'file'), join(at, 'linked'));
    fs.appendFileSync(join(at, 'linked'), ', changed');
    expect(fs.readFileSync(join(at, 'renamed', 'file'), 'utf8')).toBe('from the template, changed');
    fs.rmSync(join(at, 'renamed'), { recursive: true });
    expect(fs.readdirSync(at)).toEqual(['linked']);
  });

  it('goes with a layer that is sealed, and is not that of a copy or of what was unpacked', async () => {
    write(join(at, 'file'), 5);
    const copy = await world.layers.create();
    await world.layers.copyInto(copy, upper);
    await world.layers.seal(copy);
    expect(await used()).toBeLessThan(6 * MIB);

    await world.layers.unmount(at);
    await world.layers.seal(upper);
    expect(await used()).toBeGreaterThanOrEqual(5 * MIB);
    // The seal is not a file of the sandbox: it can be written when the quota is used up.
    await quotas.limit(project, { bytes: MIB, entries: 1 });
    await world.layers.reopen(upper);
    await world.layers.seal(upper);
    await world.layers.verify(upper);
    const parts: Buffer[] = [];
    for await (const part of world.layers.pack(upper)) parts.push(part);
    await world.layers.remove(upper);
    expect(await used()).toBe(0);
    await world.layers.unpack(upper, Readable.from(parts));
    expect(await used()).toBe(0);
  });

  it('counts files of a merged layer until that is removed', async () => {
    write(join(at, 'file'), 5);
    await world.layers.unmount(at);
    await world.layers.seal(upper);
    const second = await world.layers.create();
    const above = await mounted([upper, template], second);
    await joined(second, project);
    write(join(above, 'other'), 3);
    await world.layers.unmount(above);
    await world.layers.seal(second);

    const merged = await world.layers.merge([second, upper]);
    await quotas.assign(project, await world.layers.directories(merged));
    for (const layer of [second, upper]) await world.layers.remove(layer);
    expect(await used()).toBeGreaterThanOrEqual(8 * MIB);
    expect(await used()).toBeLessThan(9 * MIB);
    await world.shown([merged, template], (shown) => {
      expect(fs.readdirSync(shown)).toEqual(['directory', 'file', 'other']);
    });
    await world.layers.remove(merged);
    expect(await used()).toBe(0);
  });
});
