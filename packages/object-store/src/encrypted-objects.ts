/** Objects of a store as their owner sees them: decrypted, and checked against the size and digest of what was stored. */
import { createHash, randomBytes } from 'node:crypto';
import { type GiveWay, givingWay } from '@torpor/host';
import type { DataKeys } from './data-keys.ts';
import { DecryptionFailure, decrypt, encrypt } from './encryption.ts';
import type { ObjectStore } from './object-store.ts';
import { storeFailure } from './store-failure.ts';
import type { Throttle } from './throttle.ts';

/** Of content before its encryption. */
export interface ContentDigest {
  readonly bytes: number;
  readonly sha256: string;
}

export interface EncryptedBytes extends ContentDigest {
  /** The data key that decrypts the object. */
  readonly keyId: string;
  /** The size of the object in the store. */
  readonly storedBytes: number;
}

export class EncryptedObjects {
  readonly store: ObjectStore;
  readonly #keys: DataKeys;
  readonly #uploads: Throttle;

  constructor(store: ObjectStore, keys: DataKeys, uploads: Throttle) {
    this.store = store;
    this.#keys = keys;
    this.#uploads = uploads;
  }

  /** Size and digest of the result are those of the content before its encryption. */
  async put(
    key: string,
    content: AsyncIterable<Uint8Array>,
    signal?: AbortSignal,
    giveWay: GiveWay = async () => {},
  ): Promise<EncryptedBytes> {
    const { current } = this.#keys;
    const hash = createHash('sha256');
    let bytes = 0;
    const counted = async function* () {
      for await (const chunk of givingWay(content, giveWay)) {
        hash.update(chunk);
        bytes += chunk.byteLength;
        yield chunk;
      }
    };
    const encrypted = encrypt(key, counted(), current, randomBytes);
    const stored = await this.store.put(key, this.#uploads.pass(encrypted, signal), signal, giveWay);
    return { bytes, sha256: hash.digest('hex'), keyId: current.id, storedBytes: stored.bytes };
  }

  /** Throws at the end when size or digest differ from `expected`, so that the reader fails. */
  async *get(key: string, expected: ContentDigest, signal?: AbortSignal): AsyncGenerator<Buffer> {
    const place = { store: this.store.url, key: this.store.location(key) };
    const hash = createHash('sha256');
    let bytes = 0;
    try {
      for await (const chunk of decrypt(key, this.store.get(key, signal), this.#keys)) {
        hash.update(chunk);
        bytes += chunk.length;
        yield chunk;
      }
    } catch (thrown) {
      if (thrown instanceof DecryptionFailure)
        throw storeFailure(thrown.fault, place, { why: thrown.message, cause: thrown });
      throw thrown;
    }
    if (bytes !== expected.bytes)
      throw storeFailure('half_written', place, { why: `${bytes} of ${expected.bytes} bytes` });
    if (hash.digest('hex') !== expected.sha256)
      throw storeFailure('lying', place, { why: 'its sha256 is another one' });
  }
}
