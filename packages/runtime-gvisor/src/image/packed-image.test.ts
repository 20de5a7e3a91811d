import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  stat,
  truncate,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type PackedImage, packedBytes, packImage, unpackImage } from './packed-image.ts';
import { readDigests } from './page-layer.ts';
import { KnownPages, PAGE_BYTES } from './page-plan.ts';

const ID: CheckpointId = `ckpt_${'0'.repeat(20)}`;
const MEGABYTE = 1024 * 1024;
const { signal } = new AbortController();
let top: string;
let raw: string;
let again: string;

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-packed-'));
  [raw, again] = [join(top, 'raw'), join(top, 'again')];
  for (const path of [raw, again]) await mkdir(path);
});
afterEach(() => rm(top, { recursive: true, force: true }));

const hasZstd = await promisify(execFile)('zstd', ['--version']).then(
  () => true,
  () => false,
);

/** A part that cannot be made smaller, and zeros, as memory has them. The last page is not whole. */
const pages = Buffer.concat([Buffer.alloc(4 * MEGABYTE), randomBytes(3 * MEGABYTE + 17)]);

async function writeRaw(content: Buffer, directory = raw): Promise<void> {
  await writeFile(join(directory, 'pages.img'), content);
  await writeFile(join(directory, 'checkpoint.img'), 'state');
  await writeFile(join(directory, 'pages_meta.img'), '');
}

/** Packs the image with a page layer of its own over those of an earlier image. */
async function pack(name = 'first', below: readonly string[] = [], directory = raw): Promise<PackedImage> {
  const [packed, own] = [join(top, name), join(top, `${name}-pages`)];
  await Promise.all([mkdir(packed), mkdir(own)]);
  const known = await KnownPages.of(await Promise.all(below.map(readDigests)));
  const used = await packImage(directory, packed, { own, known }, signal);
  return { directory: packed, layers: [own, ...used.flatMap((index) => below[index] ?? [])] };
}

async function unpacked(packed: PackedImage): Promise<Buffer> {
  await rm(again, { recursive: true });
  await mkdir(again);
  await unpackImage(packed, again, ID);
  return readFile(join(again, 'pages.img'));
}

const bytesIn = async (directory: string) => {
  const sizes = await Promise.all(
    (await readdir(directory)).map(async (name) => (await stat(join(directory, name))).size),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
};

/** By how many bytes the memory of buffers grew at most while `work` was done. */
async function highestOf(work: () => Promise<void>): Promise<number> {
  const before = process.memoryUsage().arrayBuffers;
  let highest = 0;
  let isOver = false;
  const look = () => {
    highest = Math.max(highest, process.memoryUsage().arrayBuffers - before);
    if (!isOver) setImmediate(look);
  };
  look();
  await work().finally(() => {
    isOver = true;
  });
  return highest;
}

describe('a packed memory image', () => {
  it('unpacks to the same bytes, and is smaller', async () => {
    await writeRaw(pages);
    const packed = await pack();

    expect((await unpacked(packed)).equals(pages)).toBe(true);
    expect((await readdir(again)).sort()).toEqual(['checkpoint.img', 'pages.img', 'pages_meta.img']);
    expect(await readFile(join(again, 'checkpoint.img'), 'utf8')).toBe('state');
    expect(await packedBytes(packed, ID)).toBe(pages.length + 'state'.length);
    expect(await bytesIn(packed.layers[0] ?? '')).toBeLessThan(pages.length / 2);
  });

  it('stores only the pages that an earlier image does not have', async () => {
    await writeRaw(pages);
    const first = await pack();
    // As memory changes: some pages are new, some are gone, and everything behind them moves.
    const content = Buffer.concat([
      pages.subarray(0, 5 * MEGABYTE),
      randomBytes(10 * PAGE_BYTES),
      pages.subarray(5 * MEGABYTE + 3 * PAGE_BYTES),
    ]);
    await writeRaw(content);
    const second = await pack('second', first.layers);

    expect((await unpacked(second)).equals(content)).toBe(true);
    expect(second.layers).toHaveLength(2);
    expect(await bytesIn(second.layers[0] ?? '')).toBeLessThan(12 * PAGE_BYTES);
    expect((await unpacked(first)).equals(pages)).toBe(true);
  });

  it('can be packed many times over the one before, from a bounded number of layers', async () => {
    const content = Buffer.from(pages.subarray(0, 6 * MEGABYTE));
    await writeRaw(content);
    let last = await pack();
    for (let n = 0; n < 20; n++) {
      randomBytes(40 * PAGE_BYTES).copy(content, ((n * 37) % 1_400) * PAGE_BYTES);
      await writeRaw(content);
      last = await pack(`round-${n}`, last.layers);
    }
    expect(last.layers.length).toBeLessThanOrEqual(8);
    expect((await unpacked(last)).equals(content)).toBe(true);
  });

  it('stores pages itself whose earlier layer cannot be read', async () => {
    await writeRaw(pages);
    const { layers } = await pack();
    await truncate(join(layers[0] ?? '', 'digests'), 5);
    const second = await pack('second', layers);
    expect(second.layers).toHaveLength(1);
    expect((await unpacked(second)).equals(pages)).toBe(true);
  });

  it('for servers of an earlier version has all pages in the checkpoint', async () => {
    await writeRaw(pages);
    const directory = join(top, 'whole');
    await mkdir(directory);
    expect(await packImage(raw, directory, null, signal)).toEqual([]);
    expect((await readdir(directory)).sort()).toEqual([
      'checkpoint.img.zst',
      'pages.img.zst',
      'pages_meta.img.zst',
      'pieces.json',
    ]);
    expect((await unpacked({ directory, layers: [] })).equals(pages)).toBe(true);
  });

  it.skipIf(!hasZstd)('has pages that can be read with zstd alone', async () => {
    await writeRaw(pages);
    const { layers } = await pack();
    const { stdout } = await promisify(execFile)('zstd', ['-dc', join(layers[0] ?? '', 'pages.zst')], {
      encoding: 'buffer',
      maxBuffer: 2 * pages.length,
    });
    expect(stdout.equals(pages)).toBe(true);
  });

  it('is corrupt when one bit is wrong (R91)', async () => {
    await writeRaw(pages);
    const packed = await pack();
    const file = await open(join(packed.layers[0] ?? '', 'pages.zst'), 'r+');
    const byte = Buffer.alloc(1);
    await file.read(byte, 0, 1, 2 * MEGABYTE);
    await file.write(Buffer.from([(byte[0] ?? 0) ^ 1]), 0, 1, 2 * MEGABYTE);
    await file.close();

    await expect(unpacked(packed)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
  });

  const FILES = [
    ['pages.zst', ({ layers }: PackedImage) => layers[0]],
    ['pages.json', ({ layers }: PackedImage) => layers[0]],
    ['pieces.json', ({ directory }: PackedImage) => directory],
    ['checkpoint.img.zst', ({ directory }: PackedImage) => directory],
  ] as const;

  it.each(FILES)('is corrupt when %s is too short', async (name, directoryOf) => {
    await writeRaw(pages);
    const packed = await pack();
    const path = join(directoryOf(packed) ?? '', name);
    await truncate(path, (await stat(path)).size - 3);
    await expect(unpacked(packed)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it.each(FILES)('is missing when %s is missing', async (name, directoryOf) => {
    await writeRaw(pages);
    const packed = await pack();
    await unlink(join(directoryOf(packed) ?? '', name));
    await expect(unpacked(packed)).rejects.toMatchObject({ code: 'checkpoint_missing' });
  });

  it('is corrupt when it refers to pages that its layers do not have', async () => {
    await writeRaw(pages);
    const packed = await pack();
    await expect(unpacked({ ...packed, layers: [] })).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
    await writeRaw(pages.subarray(0, PAGE_BYTES));
    const other = await pack('other');
    const swapped = { directory: packed.directory, layers: other.layers };
    await expect(unpacked(swapped)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it('is never unpacked outside its directory', async () => {
    await writeRaw(pages);
    const packed = await pack();
    const record = join(packed.directory, 'pieces.json');
    await writeFile(record, (await readFile(record, 'utf8')).replace('checkpoint.img', '../outside.img'));
    await expect(unpacked(packed)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it('takes a bounded amount of memory, however many are packed and unpacked at once', async () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
    for (const name of names) {
      for (const directory of [raw, again]) await mkdir(join(directory, name));
      await writeFile(join(raw, name, 'pages.img'), randomBytes(12 * MEGABYTE));
    }
    const highest = await highestOf(async () => {
      const packed = await Promise.all(names.map((name) => pack(name, [], join(raw, name))));
      await Promise.all(packed.map((one, index) => unpackImage(one, join(again, names[index] ?? ''), ID)));
    });
    expect(highest / MEGABYTE).toBeLessThan(32);
    const [packedFrom, whole] = await Promise.all(
      [raw, again].map((directory) => readFile(join(directory, 'h', 'pages.img'))),
    );
    expect(whole && packedFrom?.equals(whole)).toBe(true);
  });

  it('stops when the caller aborts', async () => {
    await writeRaw(pages);
    const [packed, own] = [join(top, 'packed'), join(top, 'pages')];
    await Promise.all([mkdir(packed), mkdir(own)]);
    await expect(
      packImage(raw, packed, { own, known: await KnownPages.of([]) }, AbortSignal.abort()),
    ).rejects.toThrow();
    expect(await readdir(packed)).not.toContain('pieces.json');
  });
});
