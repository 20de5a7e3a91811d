/** Limits the open event streams of each API key, so that one key cannot use up the server's memory. */
import { TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { onResponseClosed } from './on-response-closed.ts';

export class StreamLimit {
  readonly #limit: number;
  /** The number of open streams, by organisation and key. */
  readonly #open = new Map<string, number>();
  readonly #counted = new WeakSet<FastifyRequest>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Counts the stream of this request until its response is closed. Throws when the key has too many streams. A route
   * that changes something calls this first, so that a refusal changes nothing. A second call does nothing.
   */
  take(request: FastifyRequest, reply: FastifyReply): void {
    if (this.#counted.has(request)) return;
    const { org, keyId } = request.identity;
    const key = JSON.stringify([org, keyId]);
    const open = this.#open.get(key) ?? 0;
    if (open >= this.#limit) {
      throw new TorporError(
        'quota_exceeded',
        `This key has ${open} event streams open, which is the limit.`,
        {
          hint: 'End one of them. The limit is the setting server.streamsPerKey.',
          retryAfterMs: 1_000,
        },
      );
    }
    this.#open.set(key, open + 1);
    this.#counted.add(request);
    onResponseClosed(reply, () => this.#leave(key));
  }

  #leave(key: string): void {
    const left = (this.#open.get(key) ?? 1) - 1;
    if (left === 0) this.#open.delete(key);
    else this.#open.set(key, left);
  }
}
