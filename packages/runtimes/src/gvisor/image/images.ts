/**
 * Memory images: packed in their checkpoints, and as runsc reads them for as long as they are likely to be used.
 *
 * What is at hand is never made durable and goes when the server does: the truth is what the checkpoint holds.
 */
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { CheckpointId } from '@torpor/protocol';
import { writing } from '../../storage-failure.ts';
import { packImage, unpackImage } from './packed-image.ts';

interface AtHand {
  readonly path: string;
  bytes: number;
  users: number;
  readonly ready: Promise<void>;
}

/** Some twenty small sandboxes that went to sleep last, and the templates that new ones come from. */
const KEPT_BYTES = 1024 * 1024 * 1024;

export class Images {
  readonly #directory: string;
  readonly #keptBytes: number;
  /** Those used last come last. */
  readonly #atHand = new Map<CheckpointId, AtHand>();
  #next = 0;

  constructor(directory: string, keptBytes: number = KEPT_BYTES) {
    this.#directory = directory;
    this.#keptBytes = keptBytes;
  }

  /** What an earlier server had at hand may be half of what it was. */
  async open(): Promise<void> {
    await this.close();
    await writing(this.#directory, () => mkdir(this.#directory, { recursive: true, mode: 0o700 }));
  }

  async close(): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
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
    const path = this.#place();
    const image: AtHand = { path, bytes: 0, users: 1, ready: Promise.resolve() };
    try {
      await writing(path, () => mkdir(path, { mode: 0o700 }));
      await write(path);
      await writing(packed, () => mkdir(packed, { mode: 0o700 }));
      const [done, isPacked] = await Promise.allSettled([meanwhile(), packImage(path, packed, signal)]);
      if (isPacked.status === 'rejected') throw isPacked.reason;
      if (done.status === 'rejected') throw done.reason;
      image.bytes = await bytesIn(path);
      image.users = 0;
      this.#atHand.set(id, image);
      await this.#trim();
      return done.value;
    } catch (thrown) {
      await this.#remove(image);
      throw thrown;
    }
  }

  /** The image stays where it is until `work` has ended. */
  async use<T>(id: CheckpointId, packed: string, work: (image: string) => Promise<T>): Promise<T> {
    const image = this.#atHand.get(id) ?? this.#unpacked(id, packed);
    this.#atHand.delete(id);
    this.#atHand.set(id, image);
    image.users++;
    try {
      await image.ready;
      return await work(image.path);
    } finally {
      image.users--;
      if (image.users === 0 && this.#atHand.get(id) !== image) await this.#remove(image);
      await this.#trim();
    }
  }

  /** The next use starts from what the checkpoint holds. */
  async forget(id: CheckpointId): Promise<void> {
    const image = this.#atHand.get(id);
    this.#atHand.delete(id);
    if (image !== undefined && image.users === 0) await this.#remove(image);
  }

  #unpacked(id: CheckpointId, packed: string): AtHand {
    const path = this.#place();
    const unpack = async () => {
      await writing(path, () => mkdir(path, { mode: 0o700 }));
      await unpackImage(packed, path, id);
      image.bytes = await bytesIn(path);
    };
    const ready = unpack().catch((thrown: unknown) => {
      if (this.#atHand.get(id) === image) this.#atHand.delete(id);
      throw thrown;
    });
    const image: AtHand = { path, bytes: 0, users: 0, ready };
    return image;
  }

  async #trim(): Promise<void> {
    let bytes = 0;
    for (const image of this.#atHand.values()) bytes += image.bytes;
    for (const [id, image] of [...this.#atHand]) {
      if (bytes <= this.#keptBytes) return;
      if (image.users > 0) continue;
      bytes -= image.bytes;
      await this.forget(id);
    }
  }

  #place(): string {
    return join(this.#directory, String(this.#next++));
  }

  async #remove({ path }: AtHand): Promise<void> {
    await rm(path, { recursive: true, force: true });
  }
}

async function bytesIn(directory: string): Promise<number> {
  let bytes = 0;
  for (const name of await readdir(directory)) bytes += (await stat(join(directory, name))).size;
  return bytes;
}
