/**
 * The port to a store of objects: immutable byte strings under keys, on another machine or on a mounted share.
 *
 * A key is written once and never again. An object is visible whole or not at all. The callers record in the database which
 * keys they use, so nothing here depends on conditional writes, which some stores accept and ignore.
 *
 * Every call ends within a bound, whatever the store does, and throws one of the errors of `store-failure.ts`.
 */
import type { GiveWay } from '@torpor/host';

export interface ListedObject {
  readonly key: string;
  readonly bytes: number;
}

export interface ObjectStore {
  /** For people: `s3://bucket/prefix` or `file:///directory`. Has no credentials. */
  readonly url: string;
  /** Where an object is, for people. */
  location(key: string): string;
  /**
   * Stores all bytes of `content`, and compares what the store says it has with what was sent. After a failure no object is
   * visible, but parts of it may be in the store until `delete`. Gives way while it sends.
   */
  put(
    key: string,
    content: AsyncIterable<Uint8Array>,
    signal?: AbortSignal,
    giveWay?: GiveWay,
  ): Promise<{ readonly bytes: number }>;
  /** The bytes of an object. Throws when fewer or more bytes come than the store has announced. */
  get(key: string, signal?: AbortSignal): AsyncIterable<Buffer>;
  /** Undefined when there is no such object. */
  head(key: string, signal?: AbortSignal): Promise<{ readonly bytes: number } | undefined>;
  /** Every object whose key begins with the prefix, in no particular order. */
  list(prefix: string, signal?: AbortSignal): AsyncIterable<ListedObject>;
  /** Deletes the object, and what unfinished uploads of it left in the store. Does nothing when there is nothing. */
  delete(key: string, signal?: AbortSignal): Promise<void>;
}

/** The time limits of a store. */
export interface StoreLimits {
  /** One request, or the upload of one piece of an object. */
  readonly callMs: number;
  /** A read on which no bytes come for this long is ended. */
  readonly stallMs: number;
  /** A read that is slower than this over a whole `callMs` is ended. */
  readonly minBytesPerSecond: number;
}
