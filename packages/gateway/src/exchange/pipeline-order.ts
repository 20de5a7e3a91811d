/**
 * Keeps pipelined requests in order: requests that a client sends on one connection without waiting for the responses
 * are passed on one after the other.
 */
import type { ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

/** More than any client pipelines. Each waiting request is kept in memory, and Node itself sets no limit. */
const MAX_WAITING = 64;

interface Pipeline {
  last: ServerResponse;
  waiting: number;
}

export class PipelineOrder {
  readonly #pipelines = new WeakMap<Duplex, Pipeline>();

  /** Resolves after the response before this one; undefined when there is none. A client that exceeds the limit is disconnected. */
  enter(socket: Duplex, response: ServerResponse): Promise<void> | undefined {
    const pipeline = this.#pipelines.get(socket);
    if (pipeline === undefined) {
      this.#pipelines.set(socket, { last: response, waiting: 0 });
      return undefined;
    }
    const before = pipeline.last;
    pipeline.last = response;
    if (before.closed || before.writableFinished) return undefined;
    if (++pipeline.waiting > MAX_WAITING) socket.destroy();
    return new Promise((resolve) => {
      before.once('close', () => {
        pipeline.waiting--;
        resolve();
      });
    });
  }
}
