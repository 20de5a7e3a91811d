/**
 * Memory images: packed in their checkpoints, and at hand in this machine's memory as runsc reads them, for as long as
 * they are likely to be used. One that does not fit there is on the disk while it is used.
 *
 * What is at hand is gone when the server is: the truth is what the checkpoint holds. It is not kept on the disk,
 * because whoever makes something else durable there would have to wait until all of it was written. Nor does the
 * sandbox itself write it into memory, which would count as its own.
 */
import { copyFile, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { writing } from '../../storage-failure.ts';
import { packedBytes, packImage, unpackImage } from './packed-image.ts';

export interface ImagePlaces {
  /** In memory, and how much of it may be taken; undefined where there is none. */
  readonly memory: { readonly directory: string; readonly bytes: number } | undefined;
  readonly disk: string;
}

interface Image {
  /** Resolves when it can be read there. */
  readonly path: Promise<string>;
  users: number;
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
      await writing(path, () => mkdir(path, { recursive: true, mode: 0o700 }));
      for (const name of await readdir(path)) await rm(join(path, name), { recursive: true, force: true });
    }
  }

  async close(): Promise<void> {
    for (const path of this.#directories()) await rm(path, { recursive: true, force: true });
  }

  /**
   * Has an image written, and packs it into the directory while something else is done. It stays at hand: who fell
   * asleep last is woken next.
   */
  async write<T>(
    id: CheckpointId,
    packed: string,
    write: (image: string) => Promise<void>,
    meanwhile: () => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    await this.forget(id);
    const raw = await this.#onDisk();
    let copy: string | undefined;
    try {
      await write(raw);
      await writing(packed, () => mkdir(packed, { mode: 0o700 }));
      const tasks = [this.#copyOf(raw), packImage(raw, packed, signal), meanwhile()] as const;
      // None of them outlives the failure of another.
      await Promise.allSettled(tasks);
      copy = await tasks[0];
      const [, , done] = await Promise.all(tasks);
      if (copy !== undefined) this.#atHand.set(id, { path: Promise.resolve(copy), users: 0 });
      return done;
    } catch (thrown) {
      if (copy !== undefined) await this.#clear(copy);
      throw thrown;
    } finally {
      await this.#clear(raw);
    }
  }

  /** The image stays where it is until `work` has ended. */
  async use<T>(id: CheckpointId, packed: string, work: (image: string) => Promise<T>): Promise<T> {
    const image = this.#atHand.get(id) ?? { path: this.#unpacked(id, packed), users: 0 };
    this.#atHand.delete(id);
    this.#atHand.set(id, image);
    image.users++;
    try {
      return await work(await image.path);
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
    const path = await image.path.catch(() => undefined);
    if (image.users > 0) return;
    const isAtHand = this.#atHand.get(id) === image;
    if (isAtHand && path !== undefined && this.#inMemory.has(path)) return;
    if (isAtHand) this.#atHand.delete(id);
    if (path !== undefined) await this.#clear(path);
  }

  /** In memory; undefined when there is no room: what is only at hand must not keep anybody from falling asleep. */
  async #copyOf(raw: string): Promise<string | undefined> {
    const path = await this.#roomInMemory(await bytesIn(raw));
    if (path === undefined) return undefined;
    try {
      for (const name of await readdir(raw)) await copyFile(join(raw, name), join(path, name));
      return path;
    } catch {
      await this.#clear(path);
      return undefined;
    }
  }

  async #unpacked(id: CheckpointId, packed: string): Promise<string> {
    const path = await this.#roomInMemory(await packedBytes(packed, id));
    if (path === undefined) return this.#unpackedTo(await this.#onDisk(), id, packed);
    return this.#unpackedTo(path, id, packed).catch(async (thrown: unknown) => {
      if (!(thrown instanceof TorporError && thrown.code === 'storage_full')) throw thrown;
      return this.#unpackedTo(await this.#onDisk(), id, packed);
    });
  }

  async #unpackedTo(path: string, id: CheckpointId, packed: string): Promise<string> {
    try {
      await unpackImage(packed, path, id);
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
    return [...this.#inMemory.values()].reduce((sum, bytes) => sum + bytes, 0);
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
  await writing(path, () => mkdir(path, { mode: 0o700 }));
  return path;
}

async function bytesIn(directory: string): Promise<number> {
  let bytes = 0;
  for (const name of await readdir(directory)) bytes += (await stat(join(directory, name))).size;
  return bytes;
}
