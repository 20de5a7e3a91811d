/**
 * An object store in a directory, for tests and for a mounted share.
 *
 * ```
 * <root>/<key>                    the object
 * <root>/.partial/<key>~<random>  an upload that is under way, or was broken off
 * ```
 *
 * Calls to the file system of a server that does not answer cannot be aborted. They are given up after the time limit.
 */
import { randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { access, lstat, mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { errnoOf, isMissing, syncDirectory } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { checkedKey } from './object-key.ts';
import type { ListedObject, ObjectStore, StoreLimits } from './object-store.ts';
import { type StoreFault, type StorePlace, storeFailure } from './store-failure.ts';
import { atLeastAsFast, withinLimit } from './time-limits.ts';

const PARTIAL = '.partial';

const FAULT_BY_ERRNO: Readonly<Record<string, StoreFault>> = {
  EACCES: 'refusing',
  EPERM: 'refusing',
  EROFS: 'refusing',
  ENOSPC: 'full',
  EDQUOT: 'full',
};

export class DirectoryObjects implements ObjectStore {
  readonly url: string;
  readonly #root: string;
  readonly #limits: StoreLimits;

  /** `root` must exist: a share that is not mounted is no empty store. */
  constructor(root: string, limits: StoreLimits) {
    this.#root = root;
    this.#limits = limits;
    this.url = pathToFileURL(root).href;
  }

  location(key: string): string {
    return pathToFileURL(this.#path(key)).href;
  }

  async put(
    key: string,
    content: AsyncIterable<Uint8Array>,
    signal?: AbortSignal,
  ): Promise<{ readonly bytes: number }> {
    const place = this.#place(key);
    const path = this.#path(key);
    const partial = `${join(this.#root, PARTIAL, key)}~${randomBytes(6).toString('hex')}`;
    await this.#call(place, signal, async () => {
      await this.#requireRoot();
      await mkdir(dirname(partial), { recursive: true, mode: 0o700 });
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    });
    const file = await this.#call(place, signal, () => open(partial, 'wx', 0o600));
    try {
      let bytes = 0;
      for await (const chunk of content) {
        bytes += chunk.byteLength;
        await this.#call(place, signal, () => file.writeFile(chunk));
      }
      await this.#call(place, signal, () => file.sync());
      const { size } = await this.#call(place, signal, () => file.stat());
      if (size !== bytes) throw storeFailure('half_written', place, { why: `${size} of ${bytes} bytes` });
      await this.#call(place, signal, async () => {
        await rename(partial, path);
        await syncDirectory(dirname(path));
      });
      return { bytes };
    } finally {
      await this.#call(place, undefined, () => file.close()).catch(() => {});
      await this.#call(place, undefined, () => rm(partial, { force: true })).catch(() => {});
    }
  }

  async *get(key: string, signal?: AbortSignal): AsyncGenerator<Buffer> {
    const place = this.#place(key);
    const found = await this.head(key, signal);
    if (found === undefined) throw storeFailure('missing', place);
    const file = createReadStream(this.#path(key));
    let bytes = 0;
    try {
      for await (const chunk of atLeastAsFast(file, this.#limits, place, signal)) {
        bytes += chunk.length;
        yield chunk;
      }
    } catch (thrown) {
      throw typed(thrown, place);
    } finally {
      file.destroy();
    }
    if (bytes !== found.bytes) throw storeFailure('cut', place, { why: `${bytes} of ${found.bytes} bytes` });
  }

  async head(key: string, signal?: AbortSignal): Promise<{ readonly bytes: number } | undefined> {
    const place = this.#place(key);
    return this.#call(place, signal, async () => {
      try {
        return { bytes: (await lstat(this.#path(key))).size };
      } catch (thrown) {
        if (!isMissing(thrown)) throw thrown;
        await this.#requireRoot();
        return undefined;
      }
    });
  }

  async *list(prefix: string, signal?: AbortSignal): AsyncGenerator<ListedObject> {
    const place = { store: this.url };
    const found = await this.#call(place, signal, async () => {
      await this.#requireRoot();
      return readdir(this.#root, { recursive: true, withFileTypes: true });
    });
    for (const entry of found) {
      if (!entry.isFile()) continue;
      const key = join(entry.parentPath, entry.name).slice(this.#root.length + 1);
      if (key.startsWith(`${PARTIAL}/`) || !key.startsWith(prefix)) continue;
      const object = await this.head(key, signal);
      if (object !== undefined) yield { key, ...object };
    }
  }

  async delete(key: string, signal?: AbortSignal): Promise<void> {
    const place = this.#place(key);
    await this.#call(place, signal, async () => {
      await this.#requireRoot();
      await rm(this.#path(key), { force: true });
      const partial = join(this.#root, PARTIAL, key);
      const names = await readdir(dirname(partial)).catch((thrown: unknown) => {
        if (isMissing(thrown)) return [];
        throw thrown;
      });
      const leftovers = names.map((name) => join(dirname(partial), name));
      for (const path of leftovers) if (path.startsWith(`${partial}~`)) await rm(path, { force: true });
    });
  }

  async #requireRoot(): Promise<void> {
    await access(this.#root).catch((thrown: unknown) => {
      if (isMissing(thrown)) throw storeFailure('no_bucket', { store: this.url }, { cause: thrown });
      throw thrown;
    });
  }

  async #call<T>(place: StorePlace, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    try {
      return await withinLimit(this.#limits.callMs, place, signal, work);
    } catch (thrown) {
      throw typed(thrown, place);
    }
  }

  #path(key: string): string {
    return join(this.#root, checkedKey(key));
  }

  #place(key: string): StorePlace {
    return { store: this.url, key: checkedKey(key) };
  }
}

function typed(thrown: unknown, place: StorePlace): unknown {
  if (thrown instanceof TorporError) return thrown;
  const errno = errnoOf(thrown);
  if (errno === undefined) return thrown;
  const fault = isMissing(thrown) ? 'missing' : (FAULT_BY_ERRNO[errno] ?? 'failing');
  return storeFailure(fault, place, { why: errno, cause: thrown });
}
