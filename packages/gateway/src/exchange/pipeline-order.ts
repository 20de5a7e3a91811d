/**
 * Requests that a client sends on one connection without waiting for answers are passed on one after the other:
 * what it sent first happens first.
 */
import type { ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

/** More than any client sends ahead. Each of them is kept in memory, and Node would take them without end. */
const MOST_WAITING = 64;

interface Queue {
  last: ServerResponse;
  waiting: number;
}

export class PipelineOrder {
  private readonly queues = new WeakMap<Duplex, Queue>();

  /** What to wait for; undefined when nothing is before it. A client that sends too much ahead is hung up on. */
  take(socket: Duplex, response: ServerResponse): Promise<void> | undefined {
    const queue = this.queues.get(socket);
    if (queue === undefined) {
      this.queues.set(socket, { last: response, waiting: 0 });
      return undefined;
    }
    const before = queue.last;
    queue.last = response;
    if (before.closed || before.writableFinished) return undefined;
    if (++queue.waiting > MOST_WAITING) socket.destroy();
    return new Promise((resolve) => {
      before.once('close', () => {
        queue.waiting--;
        resolve();
      });
    });
  }
}
