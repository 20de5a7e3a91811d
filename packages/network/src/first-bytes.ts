/**
 * Reads the first bytes of a client to find a name in them, and keeps them for the server. Bytes and time are bounded, so
 * that a client that never finishes costs little.
 */

import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { looksLikeTls, parseClientHello } from './client-hello.ts';
import { parseHttpRequest } from './http-request.ts';
import type { ObservedName } from './policy.ts';

export type ParsedName =
  | ObservedName
  /** Ambiguous or malformed TLS or HTTP. */
  | { readonly is: 'unclear' }
  | { readonly is: 'more' };

export type FirstBytesResult =
  | ObservedName
  | { readonly is: 'unclear' }
  | { readonly is: 'too_slow' }
  | { readonly is: 'gone' };

export interface PeekLimits {
  readonly bytes: number;
  /** Time from the first byte to the last that is needed. */
  readonly ms: number;
}

export function parseName(bytes: Buffer): ParsedName {
  if (bytes.length === 0) return { is: 'more' };
  return looksLikeTls(bytes) ? parseClientHello(bytes) : parseHttpRequest(bytes);
}

export class FirstBytes {
  /** Never rejects. */
  readonly result: Promise<FirstBytesResult>;
  readonly #socket: Socket;
  readonly #limits: PeekLimits;
  readonly #firstChunk = Promise.withResolvers<void>();
  #bytes: Buffer = Buffer.alloc(0);

  /** Reads the socket until `result` settles. No other reader may be attached until then. */
  constructor(socket: Socket, limits: PeekLimits) {
    this.#socket = socket;
    this.#limits = limits;
    this.result = this.#read();
  }

  /** The bytes that were read. The caller passes them on before all others. */
  get bytes(): Buffer {
    return this.#bytes;
  }

  /** True when the client sends nothing for so long. False as soon as it sends a byte or closes. */
  async isSilentFor(ms: number): Promise<boolean> {
    const timer = new AbortController();
    const silent = delay(ms, true, { signal: timer.signal }).catch(() => false);
    const active = Promise.race([this.#firstChunk.promise, this.result]).then(() => false);
    const isSilent = await Promise.race([silent, active]);
    timer.abort();
    return isSilent;
  }

  #read(): Promise<FirstBytesResult> {
    const socket = this.#socket;
    const { promise, resolve } = Promise.withResolvers<FirstBytesResult>();
    let timer: NodeJS.Timeout | undefined;
    const settle = (result: FirstBytesResult) => {
      clearTimeout(timer);
      socket.off('readable', onReadable).off('end', onEnd).off('close', onClose);
      resolve(result);
    };
    const onReadable = () => {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) return;
      this.#firstChunk.resolve();
      timer ??= setTimeout(() => settle({ is: 'too_slow' }), this.#limits.ms);
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      const parsed = parseName(this.#bytes);
      if (parsed.is !== 'more') settle(parsed);
      else if (this.#bytes.length >= this.#limits.bytes) settle({ is: 'unclear' });
    };
    const onEnd = () => settle(this.#bytes.length === 0 ? { is: 'other' } : { is: 'unclear' });
    const onClose = () => settle({ is: 'gone' });
    socket.on('readable', onReadable).once('end', onEnd).once('close', onClose);
    return promise;
  }
}
