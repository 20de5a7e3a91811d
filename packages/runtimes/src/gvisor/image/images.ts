/**
 * Memory images: packed in their checkpoints, and at hand in this machine's memory as runsc reads them, for as long as
 * they are likely to be used. One that does not fit there is on the disk while it is used.
 *
 * What is at hand is gone when the server is: the truth is what the checkpoint holds. It is not kept on the disk,
 * because whoever makes something else durable there would have to wait until all of it was written. Nor does the
 * sandbox itself write it into memory, which would count as its own.
 */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { CheckpointId } from '@torpor/protocol';
import { writing } from '../../storage-failure.ts';
import { packedBytes, packImage, unpackImage } from './packed-image.ts';

export interface ImagePlaces {
  /** In memory, and how much of it may be taken; undefined where there is none. */
  readonly memory: { readonly directory: string; readonly bytes: number } | undefined;
  readonly disk: string;
}

interface Room {
  readonly path: string;
  readonly bytes: number;
}

interface Image {
  /** Resolves when it can be read. */
  readonly room: Promise<Room>;
  users: number;
}

export class Images {
  readonly #places: ImagePlaces;
  /** Those used last come last. */
  readonly #atHand = new Map<CheckpointId, Image>();
  readonly #inMemory = new Set<Room>();
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
    const raw = await this.#onDisk(0);
    let room: Room | undefined;
    try {
      await write(raw.path);
      room = await this.#inMemoryFor(await bytesIn(raw.path));
      await writing(packed, () => mkdir(packed, { mode: 0o700 }));
      const packing = packImage(raw.path, packed, room?.path, signal);
      const [done, isPacked] = await Promise.allSettled([meanwhile(), packing]);
      if (isPacked.status === 'rejected') throw isPacked.reason;
      if (done.status === 'rejected') throw done.reason;
      if (room !== undefined) this.#atHand.set(id, { room: Promise.resolve(room), users: 0 });
      return done.value;
    } catch (thrown) {
      if (room !== undefined) await this.#clear(room);
      throw thrown;
    } finally {
      await this.#clear(raw);
    }
  }

  /** The image stays where it is until `work` has ended. */
  async use<T>(id: CheckpointId, packed: string, work: (image: string) => Promise<T>): Promise<T> {
    const image = this.#atHand.get(id) ?? { room: this.#unpack(id, packed), users: 0 };
    this.#atHand.delete(id);
    this.#atHand.set(id, image);
    image.users++;
    const isLast = () => --image.users === 0;
    const room = await image.room.catch((thrown: unknown) => {
      if (this.#atHand.get(id) === image) this.#atHand.delete(id);
      throw thrown;
    });
    try {
      return await work(room.path);
    } finally {
      const isKept = this.#inMemory.has(room);
      if (isLast() && !(isKept && this.#atHand.get(id) === image)) {
        if (this.#atHand.get(id) === image) this.#atHand.delete(id);
        await this.#clear(room);
      }
    }
  }

  /** The next use starts from what the checkpoint holds. */
  async forget(id: CheckpointId): Promise<void> {
    const image = this.#atHand.get(id);
    this.#atHand.delete(id);
    // Who uses it clears it away.
    if (image?.users === 0) await this.#clear(await image.room);
  }

  async #unpack(id: CheckpointId, packed: string): Promise<Room> {
    const bytes = await packedBytes(packed, id);
    const room = (await this.#inMemoryFor(bytes)) ?? (await this.#onDisk(bytes));
    try {
      await unpackImage(packed, room.path, id);
      return room;
    } catch (thrown) {
      await this.#clear(room);
      throw thrown;
    }
  }

  /** If need be in the place of others that nobody uses. */
  async #inMemoryFor(bytes: number): Promise<Room | undefined> {
    const { memory } = this.#places;
    if (memory === undefined || bytes > memory.bytes) return undefined;
    const room: Room = { path: join(memory.directory, String(this.#next++)), bytes };
    this.#inMemory.add(room);
    while (this.#taken() > memory.bytes && (await this.#dropOldest()));
    if (this.#taken() <= memory.bytes) return made(room);
    this.#inMemory.delete(room);
    return undefined;
  }

  #onDisk(bytes: number): Promise<Room> {
    return made({ path: join(this.#places.disk, String(this.#next++)), bytes });
  }

  #directories(): string[] {
    const { memory, disk } = this.#places;
    return memory === undefined ? [disk] : [disk, memory.directory];
  }

  #taken(): number {
    let bytes = 0;
    for (const room of this.#inMemory) bytes += room.bytes;
    return bytes;
  }

  async #dropOldest(): Promise<boolean> {
    for (const [id, { users }] of this.#atHand) {
      if (users > 0) continue;
      await this.forget(id);
      return true;
    }
    return false;
  }

  async #clear(room: Room): Promise<void> {
    await rm(room.path, { recursive: true, force: true });
    this.#inMemory.delete(room);
  }
}

async function made(room: Room): Promise<Room> {
  await writing(room.path, () => mkdir(room.path, { mode: 0o700 }));
  return room;
}

async function bytesIn(directory: string): Promise<number> {
  let bytes = 0;
  for (const name of await readdir(directory)) bytes += (await stat(join(directory, name))).size;
  return bytes;
}
