/**
 * Memory images: packed in their checkpoints, and at hand in this machine's memory as runsc reads them, for as long as
 * they are likely to be used. One that does not fit there is on the disk while it is used.
 *
 * What is at hand is gone when the server is: the truth is what the checkpoint holds. It is not kept on the disk,
 * because whoever makes something else durable there would have to wait until all of it was written.
 */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { packedBytes, packImage, unpackImage } from './packed-image.ts';

export interface ImagePlaces {
  /** In memory, and how much of it may be taken; undefined where there is none. */
  readonly memory: { readonly directory: string; readonly bytes: number } | undefined;
  readonly disk: string;
}

export interface ImageOrder {
  readonly id: CheckpointId;
  /** The directory that takes it for good. */
  readonly packed: string;
  /** Undefined when nobody knows. */
  readonly bytes: number | undefined;
}

interface Image {
  /** Resolves when it can be read there. */
  readonly copy: Promise<Copy>;
  users: number;
}

/** An image as runsc reads it, with the size of each of its files. */
interface Copy {
  readonly path: string;
  readonly sizes: ReadonlyMap<string, number>;
}

export class Images {
  readonly #places: ImagePlaces;
  /** Those used last come last. */
  readonly #atHand = new Map<CheckpointId, Image>();
  /** What each path in memory takes. */
  readonly #inMemory = new Map<string, number>();
  #next = 0;

  constructor(places: ImagePlaces) {
    this.#places = places;
  }

  /** What an earlier server had at hand may be half of what it was. */
  async open(): Promise<void> {
    for (const path of this.#directories()) {
      await mapWriteErrors(path, () => mkdir(path, { recursive: true, mode: 0o700 }));
      for (const name of await readdir(path)) await rm(join(path, name), { recursive: true, force: true });
    }
  }

  async close(): Promise<void> {
    for (const path of this.#directories()) await rm(path, { recursive: true, force: true });
  }

  /**
   * Has an image of about so many bytes written, and packs it into the directory while something else is done. It
   * stays at hand: who fell asleep last is woken next.
   */
  async write<T>(
    { id, packed, bytes }: ImageOrder,
    write: (image: string) => Promise<void>,
    meanwhile: () => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    await this.forget(id);
    const path = await this.#filled(bytes, write);
    try {
      await mapWriteErrors(packed, () => mkdir(packed, { mode: 0o700 }));
      const tasks = [packImage(path, packed, signal), meanwhile()] as const;
      // None of them outlives the failure of the other.
      await Promise.allSettled(tasks);
      const [, done] = await Promise.all(tasks);
      const sizes = await sizesIn(path);
      if (this.#inMemory.has(path)) this.#inMemory.set(path, sum(sizes.values()));
      const image = { copy: Promise.resolve({ path, sizes }), users: 0 };
      this.#atHand.set(id, image);
      await this.#letGo(id, image);
      return done;
    } catch (thrown) {
      await this.#clear(path);
      throw thrown;
    }
  }

  /** The image stays where it is until `work` has ended. */
  async use<T>(id: CheckpointId, packed: string, work: (image: string) => Promise<T>): Promise<T> {
    const found = this.#atHand.get(id);
    // The copy is a cache in a place that others can reach; the packed image is the truth.
    if (found !== undefined && !(await isWhole(found)) && this.#atHand.get(id) === found)
      await this.forget(id);
    const image = this.#atHand.get(id) ?? { copy: this.#unpacked(id, packed), users: 0 };
    this.#atHand.delete(id);
    this.#atHand.set(id, image);
    image.users++;
    try {
      return await work((await image.copy).path);
    } finally {
      image.users--;
      await this.#letGo(id, image);
    }
  }

  /** The next use starts from what the checkpoint holds. */
  async forget(id: CheckpointId): Promise<void> {
    const image = this.#atHand.get(id);
    this.#atHand.delete(id);
    if (image !== undefined) await this.#letGo(id, image);
  }

  /** Clears it away, unless somebody uses it or it is to stay at hand. */
  async #letGo(id: CheckpointId, image: Image): Promise<void> {
    const path = await image.copy.then(
      (copy) => copy.path,
      () => undefined,
    );
    if (image.users > 0) return;
    const isAtHand = this.#atHand.get(id) === image;
    if (isAtHand && path !== undefined && this.#inMemory.has(path)) return;
    if (isAtHand) this.#atHand.delete(id);
    if (path !== undefined) await this.#clear(path);
  }

  async #unpacked(id: CheckpointId, packed: string): Promise<Copy> {
    const bytes = await packedBytes(packed, id);
    const path = await this.#filled(bytes, (at) => unpackImage(packed, at, id));
    return { path, sizes: await sizesIn(path) };
  }

  /** In memory where there is room; others may fill that meanwhile, and then on the disk after all. */
  async #filled(bytes: number | undefined, fill: (path: string) => Promise<void>): Promise<string> {
    const path = bytes === undefined ? undefined : await this.#roomInMemory(bytes);
    if (path === undefined) return this.#fill(await this.#onDisk(), fill);
    return this.#fill(path, fill).catch(async (thrown: unknown) => {
      if (!(thrown instanceof TorporError && thrown.code === 'storage_full')) throw thrown;
      return this.#fill(await this.#onDisk(), fill);
    });
  }

  async #fill(path: string, fill: (path: string) => Promise<void>): Promise<string> {
    try {
      await fill(path);
      return path;
    } catch (thrown) {
      await this.#clear(path);
      throw thrown;
    }
  }

  /** If need be in the place of others that nobody uses. Who else writes to memory may have filled it all the same. */
  async #roomInMemory(bytes: number): Promise<string | undefined> {
    const { memory } = this.#places;
    if (memory === undefined || bytes > memory.bytes) return undefined;
    const path = join(memory.directory, String(this.#next++));
    this.#inMemory.set(path, bytes);
    while (this.#taken() > memory.bytes && (await this.#dropOldest()));
    const isMade = this.#taken() <= memory.bytes && (await made(path).catch(() => undefined));
    if (isMade === path) return path;
    this.#inMemory.delete(path);
    return undefined;
  }

  #onDisk(): Promise<string> {
    return made(join(this.#places.disk, String(this.#next++)));
  }

  #directories(): string[] {
    const { memory, disk } = this.#places;
    return memory === undefined ? [disk] : [disk, memory.directory];
  }

  #taken(): number {
    return sum(this.#inMemory.values());
  }

  async #dropOldest(): Promise<boolean> {
    for (const [id, { users }] of this.#atHand) {
      if (users > 0) continue;
      await this.forget(id);
      return true;
    }
    return false;
  }

  async #clear(path: string): Promise<void> {
    await rm(path, { recursive: true, force: true });
    this.#inMemory.delete(path);
  }
}

async function made(path: string): Promise<string> {
  await mapWriteErrors(path, () => mkdir(path, { mode: 0o700 }));
  return path;
}

async function sizesIn(directory: string): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  for (const name of await readdir(directory)) sizes.set(name, (await stat(join(directory, name))).size);
  return sizes;
}

/** Whether the files of a copy are there with their sizes. One that could not be made is told by its own failure. */
async function isWhole({ copy }: Image): Promise<boolean> {
  const made = await copy.catch(() => undefined);
  if (made === undefined) return true;
  const found = await sizesIn(made.path).catch(() => new Map<string, number>());
  return [...made.sizes].every(([name, size]) => found.get(name) === size);
}

function sum(numbers: Iterable<number>): number {
  let total = 0;
  for (const number of numbers) total += number;
  return total;
}
