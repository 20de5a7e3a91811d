/**
 * Memory images. A checkpoint holds its image packed. Unpacked copies, as runsc reads them, are cached in this machine's
 * memory for as long as they are likely to be used. A copy that does not fit there is on the disk while it is used.
 *
 * The cache ends with the server; the checkpoint has the authoritative image. The cache is not kept on the disk, because a
 * sync of anything else on that disk would have to wait until the cached images were written too.
 */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapWriteErrors } from '@torpor/runtime-shared';
import { type Droppable, MemoryBudget } from '../caches/memory-budget.ts';
import {
  type PackedImage,
  type PageDirectories,
  packedBytes,
  packImage,
  unpackImage,
} from './packed-image.ts';

export interface ImageDirectories {
  /** The directory in memory and its largest size; undefined when there is none. */
  readonly memory: { readonly directory: string; readonly bytes: number } | undefined;
  readonly disk: string;
}

/** An image as a sandbox has just written it: not packed, and not part of any checkpoint yet. */
export interface WrittenImage {
  readonly id: CheckpointId;
  readonly path: string;
}

interface Image {
  /** Resolves when the copy is complete. */
  readonly copy: Promise<Copy>;
  users: number;
  /** What the budget counts for this copy. Absent for a copy on the disk. */
  share?: Droppable;
}

/** An unpacked image, with the size of each of its files. */
interface Copy {
  readonly path: string;
  readonly sizes: ReadonlyMap<string, number>;
}

export class Images {
  readonly #directories: ImageDirectories;
  readonly #budget: MemoryBudget;
  /** The cached images, least recently used first. */
  readonly #cache = new Map<CheckpointId, Image>();
  /** The size of each directory in memory. */
  readonly #inMemory = new Map<string, number>();
  #nextDirectory = 0;

  /** `budget` is for copies in memory; the directory there may be smaller. */
  constructor(directories: ImageDirectories, budget = new MemoryBudget(Number.POSITIVE_INFINITY)) {
    this.#directories = directories;
    this.#budget = budget;
  }

  /** Deletes what an earlier server cached, because a copy may be incomplete. */
  async open(): Promise<void> {
    for (const path of this.#roots()) {
      await mapWriteErrors(path, () => mkdir(path, { recursive: true, mode: 0o700 }));
      for (const name of await readdir(path)) await rm(join(path, name), { recursive: true, force: true });
    }
  }

  async close(): Promise<void> {
    for (const path of this.#roots()) await rm(path, { recursive: true, force: true });
  }

  /**
   * Calls `write` with a new directory, which is in memory if `bytes` fit there. The image is neither cached nor part of a
   * checkpoint before `pack`.
   */
  async write(
    { id, bytes }: { readonly id: CheckpointId; readonly bytes: number | undefined },
    write: (image: string) => Promise<void>,
  ): Promise<WrittenImage> {
    await this.evict(id);
    return { id, path: await this.#writeNew(bytes, write) };
  }

  /**
   * Packs a written image into the directory `packed`, which it makes, and into page layers (`packImage`). The unpacked image
   * stays cached: the sandbox that was paused last is often the next to wake. After a failure nothing of the image is cached.
   */
  async pack(
    { id, path }: WrittenImage,
    packed: string,
    pages: PageDirectories | null,
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    try {
      await mapWriteErrors(packed, () => mkdir(packed, { mode: 0o700 }));
      const used = await packImage(path, packed, pages, signal);
      const sizes = await sizesIn(path);
      if (this.#inMemory.has(path)) this.#inMemory.set(path, sum(sizes.values()));
      const image: Image = { copy: Promise.resolve({ path, sizes }), users: 0 };
      this.#cache.set(id, image);
      this.#takeShare(id, image, path);
      await this.#evictIfUnused(id, image);
      return used;
    } catch (thrown) {
      await this.#delete(path);
      throw thrown;
    }
  }

  /** Unpacks the image unless a copy is cached, and keeps the copy while `work` runs. */
  async withImage<T>(id: CheckpointId, packed: PackedImage, work: (image: string) => Promise<T>): Promise<T> {
    const found = this.#cache.get(id);
    // Other programs can change files in the cache. A damaged copy is unpacked again.
    if (found !== undefined && !(await isComplete(found)) && this.#cache.get(id) === found)
      await this.evict(id);
    const image: Image = this.#cache.get(id) ?? { copy: this.#unpack(id, packed), users: 0 };
    this.#cache.delete(id);
    this.#cache.set(id, image);
    image.users++;
    try {
      const { path } = await image.copy;
      this.#takeShare(id, image, path);
      return await work(path);
    } finally {
      image.users--;
      await this.#evictIfUnused(id, image);
    }
  }

  /** Marks a copy in memory as used just now. A copy that does not fit into the budget is not cached. */
  #takeShare(id: CheckpointId, image: Image, path: string): void {
    const bytes = this.#inMemory.get(path);
    if (bytes === undefined || this.#cache.get(id) !== image) return;
    const drop = async () => {
      // When this fails, a file is left in the directory, which the next server empties.
      if (this.#cache.get(id) === image) await this.evict(id).catch(() => {});
    };
    image.share ??= { bytes, drop };
    if (!this.#budget.add(image.share)) this.#cache.delete(id);
  }

  /** Removes the copy from the cache. The next use unpacks the image of the checkpoint. */
  async evict(id: CheckpointId): Promise<void> {
    const image = this.#cache.get(id);
    this.#cache.delete(id);
    if (image?.share !== undefined) this.#budget.remove(image.share);
    if (image !== undefined) await this.#evictIfUnused(id, image);
  }

  /** Deletes the copy, unless it is in use or stays cached. */
  async #evictIfUnused(id: CheckpointId, image: Image): Promise<void> {
    const path = await image.copy.then(
      (copy) => copy.path,
      () => undefined,
    );
    if (image.users > 0) return;
    const isCached = this.#cache.get(id) === image;
    if (isCached && path !== undefined && this.#inMemory.has(path)) return;
    if (isCached) this.#cache.delete(id);
    if (path !== undefined) await this.#delete(path);
  }

  async #unpack(id: CheckpointId, packed: PackedImage): Promise<Copy> {
    const bytes = await packedBytes(packed, id);
    const path = await this.#writeNew(bytes, (at) => unpackImage(packed, at, id));
    return { path, sizes: await sizesIn(path) };
  }

  /** Writes into memory if there is room, and to the disk if other programs fill the memory meanwhile. */
  async #writeNew(bytes: number | undefined, fill: (path: string) => Promise<void>): Promise<string> {
    const path = bytes === undefined ? undefined : await this.#newInMemory(bytes);
    if (path === undefined) return this.#fillOrDelete(await this.#newOnDisk(), fill);
    return this.#fillOrDelete(path, fill).catch(async (thrown: unknown) => {
      if (!(thrown instanceof TorporError && thrown.code === 'storage_full')) throw thrown;
      return this.#fillOrDelete(await this.#newOnDisk(), fill);
    });
  }

  async #fillOrDelete(path: string, fill: (path: string) => Promise<void>): Promise<string> {
    try {
      await fill(path);
      return path;
    } catch (thrown) {
      await this.#delete(path);
      throw thrown;
    }
  }

  /**
   * Makes a directory in memory; evicts unused copies if they take its room. Undefined when there is no room, also because
   * other programs have filled the memory.
   */
  async #newInMemory(bytes: number): Promise<string | undefined> {
    const { memory } = this.#directories;
    if (memory === undefined || bytes > memory.bytes) return undefined;
    const path = join(memory.directory, String(this.#nextDirectory++));
    this.#inMemory.set(path, bytes);
    while (this.#usedBytes() > memory.bytes && (await this.#evictOldest()));
    const isMade = this.#usedBytes() <= memory.bytes && (await makeDirectory(path).catch(() => undefined));
    if (isMade === path) return path;
    this.#inMemory.delete(path);
    return undefined;
  }

  #newOnDisk(): Promise<string> {
    return makeDirectory(join(this.#directories.disk, String(this.#nextDirectory++)));
  }

  #roots(): string[] {
    const { memory, disk } = this.#directories;
    return memory === undefined ? [disk] : [disk, memory.directory];
  }

  #usedBytes(): number {
    return sum(this.#inMemory.values());
  }

  async #evictOldest(): Promise<boolean> {
    for (const [id, { users }] of this.#cache) {
      if (users > 0) continue;
      await this.evict(id);
      return true;
    }
    return false;
  }

  async #delete(path: string): Promise<void> {
    await rm(path, { recursive: true, force: true });
    this.#inMemory.delete(path);
  }
}

async function makeDirectory(path: string): Promise<string> {
  await mapWriteErrors(path, () => mkdir(path, { mode: 0o700 }));
  return path;
}

async function sizesIn(directory: string): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  for (const name of await readdir(directory)) sizes.set(name, (await stat(join(directory, name))).size);
  return sizes;
}

/**
 * Whether every file of a copy is there in its size. Also true when the unpacking failed: the caller awaits the copy next and
 * gets the error of the unpacking.
 */
async function isComplete({ copy }: Image): Promise<boolean> {
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
