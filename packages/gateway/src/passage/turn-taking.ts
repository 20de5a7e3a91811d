/**
 * Requests that a client sends on one connection without waiting for answers are passed on one after the other:
 * what it sent first happens first.
 */
import type { ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

export class TurnTaking {
  private readonly last = new WeakMap<Duplex, ServerResponse>();

  /** What to wait for; undefined when nothing is before it. */
  take(socket: Duplex, response: ServerResponse): Promise<void> | undefined {
    const before = this.last.get(socket);
    this.last.set(socket, response);
    if (before === undefined || before.closed || before.writableFinished) return undefined;
    return new Promise((resolve) => before.once('close', () => resolve()));
  }
}
