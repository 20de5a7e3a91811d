/**
 * What a client says first, read without taking it from whoever it is meant for: bounded in bytes and in time,
 * so that a client that never finishes costs little.
 */

import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { looksLikeTls, readClientHello } from './client-hello.ts';
import { readHttpRequest } from './http-request.ts';
import type { Shown } from './policy.ts';

export type Reading =
  | Shown
  /** TLS or HTTP that can be read in two ways, or in none. */
  | { readonly is: 'unclear' }
  | { readonly is: 'more' };

export type FirstWords =
  | Shown
  | { readonly is: 'unclear' }
  | { readonly is: 'too_slow' }
  | { readonly is: 'gone' };

export interface PeekLimits {
  readonly bytes: number;
  /** From the first byte to the last that is needed. */
  readonly ms: number;
}

export function readFirst(bytes: Buffer): Reading {
  if (bytes.length === 0) return { is: 'more' };
  return looksLikeTls(bytes) ? readClientHello(bytes) : readHttpRequest(bytes);
}

export class FirstBytes {
  /** Settles once, and never rejects. */
  readonly words: Promise<FirstWords>;
  readonly #socket: Socket;
  readonly #limits: PeekLimits;
  readonly #begun = Promise.withResolvers<void>();
  #bytes: Buffer = Buffer.alloc(0);

  /** From here on the socket is read by this until `words` settles. */
  constructor(socket: Socket, limits: PeekLimits) {
    this.#socket = socket;
    this.#limits = limits;
    this.words = this.#listen();
  }

  /** What was read: it goes to the other side before anything else does. */
  get bytes(): Buffer {
    return this.#bytes;
  }

  /** True when nothing was said for so long; false as soon as something is, or the client is gone. */
  async isSilentFor(ms: number): Promise<boolean> {
    const timer = new AbortController();
    const silent = delay(ms, true, { signal: timer.signal }).catch(() => false);
    const spoke = Promise.race([this.#begun.promise, this.words]).then(() => false);
    const isSilent = await Promise.race([silent, spoke]);
    timer.abort();
    return isSilent;
  }

  #listen(): Promise<FirstWords> {
    const socket = this.#socket;
    const { promise, resolve } = Promise.withResolvers<FirstWords>();
    let timer: NodeJS.Timeout | undefined;
    const settle = (words: FirstWords) => {
      clearTimeout(timer);
      socket.off('readable', onReadable).off('end', onEnd).off('close', onClose);
      resolve(words);
    };
    const onReadable = () => {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) return;
      this.#begun.resolve();
      timer ??= setTimeout(() => settle({ is: 'too_slow' }), this.#limits.ms);
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      const reading = readFirst(this.#bytes);
      if (reading.is !== 'more') settle(reading);
      else if (this.#bytes.length >= this.#limits.bytes) settle({ is: 'unclear' });
    };
    const onEnd = () => settle(this.#bytes.length === 0 ? { is: 'other' } : { is: 'unclear' });
    const onClose = () => settle({ is: 'gone' });
    socket.on('readable', onReadable).once('end', onEnd).once('close', onClose);
    return promise;
  }
}
