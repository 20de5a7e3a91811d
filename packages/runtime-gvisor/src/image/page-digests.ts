/**
 * Digests the pages of memory images, in threads: the digests of an image with 500 MB would occupy this process for a quarter of
 * a second, and a pause waits for them.
 */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { allDone } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { DIGEST_BYTES, PAGE_BYTES } from './page-plan.ts';

/** Threads that share an order take turns at the pieces of the file. */
export interface DigestOrder {
  readonly id: number;
  readonly descriptor: number;
  readonly bytes: number;
  readonly pageBytes: number;
  readonly digestBytes: number;
  readonly nextPiece: SharedArrayBuffer;
}

/** The digests of some pages, or the end of the order. */
type DigestAnswer =
  | { readonly id: number; readonly page: number; readonly digests: Uint8Array }
  | { readonly id: number; readonly error?: unknown };

type OnDigests = (page: number, digests: Uint8Array) => void;

const PROGRAM = new URL('./page-digests-worker.mjs', import.meta.url);
/** More than two threads are faster than the memory. */
const THREADS = Math.min(2, availableParallelism());
const { O_RDONLY, O_NOFOLLOW } = constants;

/** The first bytes of the SHA-256 of every page, one after the other. `bytes` is the size of the file. */
export async function digestPages(path: string, bytes: number, signal: AbortSignal): Promise<Buffer> {
  const digests = Buffer.alloc(Math.ceil(bytes / PAGE_BYTES) * DIGEST_BYTES);
  const nextPiece = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  signal.throwIfAborted();
  const file = await open(path, O_RDONLY | O_NOFOLLOW);
  // The threads find no piece any more.
  const stop = () => Atomics.store(new Int32Array(nextPiece), 0, 2 ** 30);
  signal.addEventListener('abort', stop);
  try {
    const order = {
      descriptor: file.fd,
      bytes,
      pageBytes: PAGE_BYTES,
      digestBytes: DIGEST_BYTES,
      nextPiece,
    };
    const add: OnDigests = (page, some) => digests.set(some, page * DIGEST_BYTES);
    // The file must not be closed before both threads are done with it.
    await allDone(...threads.map((thread) => thread.run(order, add)));
  } finally {
    signal.removeEventListener('abort', stop);
    await file.close();
  }
  signal.throwIfAborted();
  return digests;
}

class DigestThread {
  #worker: Worker | undefined;
  #lastId = 0;
  readonly #waiting = new Map<
    number,
    { readonly ended: PromiseWithResolvers<void>; readonly add: OnDigests }
  >();

  async run(order: Omit<DigestOrder, 'id'>, add: OnDigests): Promise<void> {
    const id = ++this.#lastId;
    const ended = Promise.withResolvers<void>();
    this.#waiting.set(id, { ended, add });
    try {
      this.#worker ??= this.#start();
      // Only a thread with work keeps this process alive.
      this.#worker.ref();
      this.#worker.postMessage({ ...order, id });
      await ended.promise;
    } finally {
      this.#waiting.delete(id);
      if (this.#waiting.size === 0) this.#worker?.unref();
    }
  }

  #start(): Worker {
    const worker = new Worker(PROGRAM, { resourceLimits: { maxYoungGenerationSizeMb: 2 } });
    worker.on('message', (answer: DigestAnswer) => {
      const waiting = this.#waiting.get(answer.id);
      if ('digests' in answer) waiting?.add(answer.page, answer.digests);
      else if (answer.error === undefined) waiting?.ended.resolve();
      else waiting?.ended.reject(answer.error);
    });
    const fail = (cause?: unknown) => {
      // After an error the thread also exits. Orders of the next thread are not affected.
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      const ended = new TorporError('internal', 'A thread that digests memory has ended.', { cause });
      for (const waiting of this.#waiting.values()) waiting.ended.reject(ended);
    };
    worker.once('error', fail);
    worker.once('exit', () => fail());
    return worker;
  }
}

const threads = Array.from({ length: THREADS }, () => new DigestThread());
