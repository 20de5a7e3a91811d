/** Server-sent events: frames, and a stream that shows signs of life and ends when nobody reads it. */
import { Readable } from 'node:stream';
import type { Clock } from '@torpor/engine';
import type { TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RouteParts } from '../parts.ts';

export interface Frame {
  readonly id?: string;
  readonly event: string;
  readonly data: unknown;
}

export function wantsEvents(request: FastifyRequest): boolean {
  const accepted = (request.headers.accept ?? '')
    .split(',')
    .map((part) => part.split(';', 1)[0]?.trim().toLowerCase());
  return accepted.includes('text/event-stream');
}

/** JSON never holds a line break, so one line of data is enough. */
function frameText({ id, event, data }: Frame): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/**
 * Answers with the frames as they come, each only when the caller has taken the one before. `frames` must end
 * when `request.bound.signal` fires; it is told to, also when the caller goes away or its key is revoked.
 */
export function sendEvents(
  parts: RouteParts,
  request: FastifyRequest,
  reply: FastifyReply,
  frames: AsyncGenerator<Frame>,
): FastifyReply {
  const { metrics, clock, settings, keyWatch } = parts;
  request.bound.release();
  metrics.streams.inc();
  const key = keyWatch.watch(request.identity);
  const closed = new AbortController();
  const lines = withHeartbeats(frames, clock, settings.heartbeatMs, key.lost, request.id);
  const body = Readable.from(lines, { objectMode: false, highWaterMark: 1 });
  key.lost.addEventListener('abort', () => {
    const { reason } = key.lost as { readonly reason: TorporError };
    request.facts.errorCode = reason.code;
    request.bound.end(reason);
    // Who does not read is not told either, and must not keep the stream for that.
    clock.sleep(settings.stallMs, closed.signal).then(
      () => body.destroy(),
      () => {},
    );
  });
  body.once('close', () => {
    closed.abort();
    key.release();
    metrics.streams.dec();
  });
  return (
    reply
      .header('content-type', 'text/event-stream; charset=utf-8')
      // A proxy that collects the answer first would defeat its purpose.
      .header('x-accel-buffering', 'no')
      .send(body)
  );
}

async function* withHeartbeats(
  frames: AsyncGenerator<Frame>,
  clock: Clock,
  everyMs: number,
  lost: AbortSignal,
  requestId: string,
): AsyncGenerator<string> {
  // The head of the answer goes out with its first byte, and the caller waits for the head.
  yield ': connected\n\n';
  let next = frames.next();
  let timer = new AbortController();
  lost.addEventListener('abort', () => timer.abort());
  try {
    while (!lost.aborted) {
      timer = new AbortController();
      const beat = clock.sleep(everyMs, timer.signal).then(
        () => 'beat' as const,
        () => 'beat' as const,
      );
      const first = await Promise.race([next, beat]);
      timer.abort();
      if (lost.aborted) break;
      if (first === 'beat') {
        yield ': heartbeat\n\n';
        continue;
      }
      if (first.done) return;
      yield frameText(first.value);
      next = frames.next();
    }
    const error = lost.reason as TorporError;
    yield frameText({ event: 'error', data: { ...error.toBody(), requestId } });
  } finally {
    next.catch(() => {});
    await frames.return(undefined);
  }
}
