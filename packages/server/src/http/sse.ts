/** Server-sent events: frames, heartbeats, and the end of streams that nobody reads. */
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import type { Clock } from '@torpor/engine';
import type { TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';

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

/** JSON text has no line break, so one `data` line is enough. */
function frameText({ id, event, data }: Frame): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** The text that is sent after `everyMs` without a frame. */
interface Heartbeat {
  readonly everyMs: number;
  readonly text: string;
}

export interface StreamOptions {
  /**
   * Whether a client that loses its connection can continue where it stopped. Such a stream counts towards the limit of
   * its key, and is ended when its client does not read. The stream of a command is neither: ending it would lose the
   * command.
   */
  readonly resumable: boolean;
  /** Replaces the usual comment. */
  readonly heartbeat?: { readonly everyMs: number; readonly frame: Frame };
}

/**
 * Sends frames as they arrive. Frames that are available at once are sent in batches. A batch is sent only after the
 * client has read the previous one and the event loop has run. `frames` must end when `request.deadline.signal` fires;
 * the signal also fires when the client goes away or its key is revoked.
 */
export function sendEvents(
  ctx: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  frames: AsyncGenerator<Frame>,
  options: StreamOptions,
): FastifyReply {
  const { metrics, clock, settings, keyWatch, streamLimit } = ctx;
  if (options.resumable) streamLimit.take(request, reply);
  request.deadline.release();
  metrics.streams.inc();
  const key = keyWatch.watch(request.identity);
  const closed = new AbortController();
  const defaultHeartbeat = { everyMs: settings.heartbeatMs, text: ': heartbeat\n\n' };
  const heartbeat =
    options.heartbeat === undefined
      ? defaultHeartbeat
      : { everyMs: options.heartbeat.everyMs, text: frameText(options.heartbeat.frame) };
  const endUntaken = (chunks: AsyncGenerator<string>) =>
    withReadTimeout(chunks, clock, settings.stallMs, () => {
      request.logFields.errorCode = 'timeout';
      body.destroy();
    });
  const batches = inBatches(frames, clock, heartbeat, key.revoked, request.id);
  const body = Readable.from(options.resumable ? endUntaken(batches) : batches, {
    objectMode: false,
    highWaterMark: 1,
  });
  key.revoked.addEventListener('abort', () => {
    const { reason } = key.revoked as { readonly reason: TorporError };
    request.logFields.errorCode = reason.code;
    request.deadline.end(reason);
    // A client that does not read cannot receive the error, and must not keep the stream open.
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
      // Tells nginx not to buffer the stream.
      .header('x-accel-buffering', 'no')
      .send(body)
  );
}

/** A batch is sent when it reaches this size. */
const BATCH_CHARACTERS = 32 * 1024;

async function* inBatches(
  frames: AsyncGenerator<Frame>,
  clock: Clock,
  heartbeat: Heartbeat,
  revoked: AbortSignal,
  requestId: string,
): AsyncGenerator<string> {
  // Node sends the response headers with the first byte, and the client waits for the headers.
  yield ': connected\n\n';
  let next = frames.next();
  let timer = new AbortController();
  revoked.addEventListener('abort', () => timer.abort());
  try {
    while (!revoked.aborted) {
      timer = new AbortController();
      const quiet = clock.sleep(heartbeat.everyMs, timer.signal).then(
        () => 'quiet' as const,
        () => 'quiet' as const,
      );
      const first = await Promise.race([next, quiet]);
      timer.abort();
      if (revoked.aborted) break;
      if (first === 'quiet') {
        yield heartbeat.text;
        continue;
      }
      if (first.done) return;
      let batch = frameText(first.value);
      next = frames.next();
      const turn = setImmediate();
      while (batch.length < BATCH_CHARACTERS) {
        // `next` is awaited again after the batch is sent; a failure is thrown there.
        const more = await Promise.race([next, turn]).catch(() => undefined);
        if (more === undefined || more.done) break;
        batch += frameText(more.value);
        next = frames.next();
      }
      yield batch;
      await turn;
    }
    const error = revoked.reason as TorporError;
    yield frameText({ event: 'error', data: { ...error.toBody(), requestId } });
  } finally {
    next.catch(() => {});
    await frames.return(undefined);
  }
}

/** Calls `onStall` when the reader does not request the next chunk for `stallMs`. */
async function* withReadTimeout(
  chunks: AsyncGenerator<string>,
  clock: Clock,
  stallMs: number,
  onStall: () => void,
): AsyncGenerator<string> {
  for await (const chunk of chunks) {
    const taken = new AbortController();
    clock.sleep(stallMs, taken.signal).then(onStall, () => {});
    try {
      yield chunk;
    } finally {
      taken.abort();
    }
  }
}
