import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Images, type WrittenImage } from './images.ts';
import { KnownPages } from './page-plan.ts';

const run = promisify(execFile);
const signal = new AbortController().signal;
const idOf = (n: number): CheckpointId => `ckpt_${String(n).padStart(20, '0')}`;
let top: string;
let images: Images;

beforeEach(async () => {
  top = await mkdtemp(join(tmpdir(), 'torpor-images-'));
  images = new Images(directories());
  await images.open();
});
afterEach(() => rm(top, { recursive: true, force: true }));

/** Room for two of those that `write` makes. */
const directories = () => ({
  memory: { directory: join(top, 'cache'), bytes: 2_500 },
  disk: join(top, 'disk'),
});
/** One page layer each: `packed-image.test.ts` is about images that share pages. */
const packedOf = (n: number) => ({
  directory: join(top, `packed-${n}`),
  layers: [join(top, `pages-${n}`)],
});
const pack = async (n: number, image: WrittenImage, stop = signal) => {
  const { directory, layers } = packedOf(n);
  const [own = ''] = layers;
  await mkdir(own, { recursive: true });
  await images.pack(image, directory, { own, known: await KnownPages.of([]) }, stop);
};
const cached = () => readdir(join(top, 'cache'));
const onDisk = () => readdir(join(top, 'disk'));
const write = async (n: number, { bytes }: { bytes: number | undefined } = { bytes: 1_000 }) => {
  const image = await images.write({ id: idOf(n), bytes }, (path) =>
    writeFile(join(path, 'pages.img'), String(n).repeat(1_000)),
  );
  await pack(n, image);
};
/** As runsc says it. */
const fillingUp = (written: Promise<void>) =>
  written.catch((cause: unknown) => {
    throw new TorporError('storage_full', 'There is no space left.', { cause });
  });
const read = (n: number) =>
  images.withImage(idOf(n), packedOf(n), (image) => readFile(join(image, 'pages.img'), 'utf8'));

describe('memory images', () => {
  it('are cached after they were written', async () => {
    await write(1);
    await rm(packedOf(1).directory, { recursive: true });
    expect(await read(1)).toBe('1'.repeat(1_000));
  });

  it.each([
    ['removed', (image: string) => rm(image, { recursive: true })],
    ['emptied', (image: string) => rm(join(image, 'pages.img'))],
    ['cut short', (image: string) => truncate(join(image, 'pages.img'), 10)],
  ])('come from their checkpoint when the cached copy was %s', async (_, damage) => {
    await write(1);
    const [name = ''] = await cached();
    await damage(join(top, 'cache', name));

    expect(await read(1)).toBe('1'.repeat(1_000));
    expect(await cached()).toHaveLength(1);
  });

  it('come from their checkpoint after a restart', async () => {
    await write(1);
    images = new Images(directories());
    await images.open();
    expect(await cached()).toEqual([]);
    expect(await read(1)).toBe('1'.repeat(1_000));
  });

  it('are cached within a bound, the most recently used ones', async () => {
    await write(1);
    await write(2);
    await read(1);
    await write(3);
    expect(await cached()).toHaveLength(2);
    await rm(packedOf(1).directory, { recursive: true });
    expect(await read(1)).toBe('1'.repeat(1_000));
    await rm(packedOf(2).directory, { recursive: true });
    await expect(read(2)).rejects.toMatchObject({ code: 'checkpoint_missing' });
  });

  it('of unknown size are written to the disk', async () => {
    await write(1, { bytes: undefined });
    expect([await cached(), await onDisk()]).toEqual([[], []]);
    expect(await read(1)).toBe('1'.repeat(1_000));
  });

  it('that do not fit into memory are on the disk while they are used', async () => {
    images = new Images({ ...directories(), memory: { directory: join(top, 'cache-2'), bytes: 10 } });
    await images.open();
    await write(1);
    expect(await onDisk()).toEqual([]);
    await images.withImage(idOf(1), packedOf(1), async (image) => {
      expect(image.startsWith(join(top, 'disk'))).toBe(true);
      expect(await readFile(join(image, 'pages.img'), 'utf8')).toBe('1'.repeat(1_000));
    });
    expect(await onDisk()).toEqual([]);
  });

  it.skipIf(process.getuid?.() !== 0)(
    'are on the disk when other programs have filled the memory',
    async () => {
      const full = join(top, 'full');
      await mkdir(full);
      await run('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'torpor-test', full]);
      try {
        images = new Images({
          ...directories(),
          memory: { directory: join(full, 'cache'), bytes: 1024 ** 2 },
        });
        await images.open();
        const pages = randomBytes(200_000);
        const written = await images.write({ id: idOf(1), bytes: 200_000 }, (image) =>
          fillingUp(writeFile(join(image, 'pages.img'), pages)),
        );
        await pack(1, written);
        const found = await images.withImage(idOf(1), packedOf(1), (image) =>
          readFile(join(image, 'pages.img')),
        );
        expect(found.equals(pages)).toBe(true);
        expect([await readdir(join(full, 'cache')), await onDisk()]).toEqual([[], []]);
        await rm(join(full, 'cache'), { recursive: true });
        expect(await images.withImage(idOf(1), packedOf(1), async () => 'used')).toBe('used');
      } finally {
        await run('umount', [full]);
      }
    },
  );

  it('never take more memory than the bound, however many are used at once', async () => {
    for (const n of [1, 2, 3, 4, 5]) await write(n);
    let most = 0;
    const looks = [1, 2, 3, 4, 5].map((n) =>
      images.withImage(idOf(n), packedOf(n), async () => {
        most = Math.max(most, (await cached()).length);
      }),
    );
    await Promise.all(looks);
    expect(most).toBeLessThanOrEqual(2);
    expect(await onDisk()).toEqual([]);
  });

  it('are unpacked once for several starts at the same time', async () => {
    await write(1);
    await images.evict(idOf(1));
    const seen = new Set<string>();
    const looks = Array.from({ length: 5 }, () =>
      images.withImage(idOf(1), packedOf(1), async (image) => void seen.add(image)),
    );
    await Promise.all(looks);
    expect(seen.size).toBe(1);
  });

  it('stay until their last user has ended', async () => {
    await write(1);
    await images.withImage(idOf(1), packedOf(1), async (image) => {
      await images.evict(idOf(1));
      await write(2);
      await write(3);
      await write(4);
      expect(await readFile(join(image, 'pages.img'), 'utf8')).toBe('1'.repeat(1_000));
    });
    // The image in use took its part of the room until then.
    expect(await cached()).toHaveLength(1);
  });

  it('leave nothing behind when they could not be written or read', async () => {
    const failing = () => Promise.reject(new Error('no'));
    const order = { id: idOf(1), bytes: 1_000 };
    await expect(images.write(order, failing)).rejects.toThrow('no');
    const stopped = new AbortController();
    stopped.abort(new Error('no'));
    const unpacked = await images.write(order, (image) => writeFile(join(image, 'pages.img'), 'pages'));
    await expect(pack(1, unpacked, stopped.signal)).rejects.toThrow('no');
    await mkdir(packedOf(2).directory);
    await expect(read(2)).rejects.toMatchObject({ code: 'checkpoint_missing' });
    expect(await cached()).toEqual([]);
    // The next use does not get the earlier failure.
    await rm(packedOf(2).directory, { recursive: true });
    await write(2);
    expect(await read(2)).toBe('2'.repeat(1_000));
  });
});
