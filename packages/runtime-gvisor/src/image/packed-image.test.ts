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
import { packImage, unpackImage } from './packed-image.ts';

const ID: CheckpointId = `ckpt_${'0'.repeat(20)}`;
const MEGABYTE = 1024 * 1024;
let raw: string;
let packed: string;
let again: string;

beforeEach(async () => {
  [raw, packed, again] = (await Promise.all(
    ['raw', 'packed', 'again'].map((name) => mkdtemp(join(tmpdir(), `torpor-${name}-`))),
  )) as [string, string, string];
});
afterEach(async () => {
  for (const path of [raw, packed, again]) await rm(path, { recursive: true, force: true });
});

const hasZstd = await promisify(execFile)('zstd', ['--version']).then(
  () => true,
  () => false,
);

/** A part that cannot be made smaller, and zeros, as memory has them. */
const pages = Buffer.concat([randomBytes(3 * MEGABYTE + 17), Buffer.alloc(4 * MEGABYTE)]);

async function pack(): Promise<void> {
  await writeFile(join(raw, 'pages.img'), pages);
  await writeFile(join(raw, 'checkpoint.img'), 'state');
  await writeFile(join(raw, 'pages_meta.img'), '');
  await packImage(raw, packed, new AbortController().signal);
}

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
    await pack();
    await unpackImage(packed, again, ID);

    expect((await readdir(again)).sort()).toEqual(['checkpoint.img', 'pages.img', 'pages_meta.img']);
    expect((await readFile(join(again, 'pages.img'))).equals(pages)).toBe(true);
    expect(await readFile(join(again, 'checkpoint.img'), 'utf8')).toBe('state');
    expect((await stat(join(packed, 'pages.img.zst'))).size).toBeLessThan(pages.length / 2);
  });

  it.skipIf(!hasZstd)('can be read with zstd alone', async () => {
    await pack();
    const { stdout } = await promisify(execFile)('zstd', ['-dc', join(packed, 'pages.img.zst')], {
      encoding: 'buffer',
      maxBuffer: 2 * pages.length,
    });
    expect(stdout.equals(pages)).toBe(true);
  });

  it('is corrupt when one bit is wrong (R91)', async () => {
    await pack();
    const file = await open(join(packed, 'pages.img.zst'), 'r+');
    const byte = Buffer.alloc(1);
    await file.read(byte, 0, 1, 2 * MEGABYTE);
    await file.write(Buffer.from([(byte[0] ?? 0) ^ 1]), 0, 1, 2 * MEGABYTE);
    await file.close();

    await expect(unpackImage(packed, again, ID)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it.each(['pages.img.zst', 'pieces.json'])('is corrupt when %s is too short', async (name) => {
    await pack();
    await truncate(join(packed, name), (await stat(join(packed, name))).size - 3);
    await expect(unpackImage(packed, again, ID)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it.each(['pages.img.zst', 'pieces.json'])('is missing when %s is missing', async (name) => {
    await pack();
    await unlink(join(packed, name));
    await expect(unpackImage(packed, again, ID)).rejects.toMatchObject({ code: 'checkpoint_missing' });
  });

  it('is never unpacked outside its directory', async () => {
    await pack();
    const record = join(packed, 'pieces.json');
    await writeFile(record, (await readFile(record, 'utf8')).replace('checkpoint.img', '../outside.img'));
    await expect(unpackImage(packed, again, ID)).rejects.toMatchObject({ code: 'checkpoint_corrupt' });
  });

  it('takes a bounded amount of memory, however many are packed and unpacked at once', async () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
    for (const name of names) {
      for (const directory of [raw, packed, again]) await mkdir(join(directory, name));
      await writeFile(join(raw, name, 'pages.img'), randomBytes(12 * MEGABYTE));
    }
    const highest = await highestOf(async () => {
      const { signal } = new AbortController();
      await Promise.all(names.map((name) => packImage(join(raw, name), join(packed, name), signal)));
      await Promise.all(names.map((name) => unpackImage(join(packed, name), join(again, name), ID)));
    });
    expect(highest / MEGABYTE).toBeLessThan(32);
    const [packedFrom, unpacked] = await Promise.all(
      [raw, again].map((directory) => readFile(join(directory, 'h', 'pages.img'))),
    );
    expect(unpacked && packedFrom?.equals(unpacked)).toBe(true);
  });

  it('stops when the caller aborts', async () => {
    await writeFile(join(raw, 'pages.img'), pages);
    await expect(packImage(raw, packed, AbortSignal.abort())).rejects.toThrow();
    expect(await readdir(packed)).not.toContain('pieces.json');
  });
});
