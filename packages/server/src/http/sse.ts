/** Server-sent events: frames, and a stream that shows signs of life and ends when nobody reads it. */
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

/** JSON never holds a line break, so one line of data is enough. */
function frameText({ id, event, data }: Frame): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** When nothing happens for so long, the stream shows that it is alive. */
interface Heartbeat {
  readonly everyMs: number;
  readonly text: string;
}

export interface StreamOptions {
  /**
   * Whether a reader that is cut off can go on where it stopped. Such a stream counts towards what its key may have
   * open, and is ended when nobody reads it. A command is not: its reader may rest, and would lose it.
   */
  readonly resumable: boolean;
  /** Instead of the usual comment. */
  readonly heartbeat?: { readonly everyMs: number; readonly frame: Frame };
}

/**
 * Answers with the frames as they come. Frames that are there at once go out in batches, each only when the caller
 * has taken the one before and everybody else has had a turn. `frames` must end when `request.deadline.signal` fires;
 * it is told to, also when the caller goes away or its key is revoked.
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
  const beat =
    options.heartbeat === undefined
      ? defaultHeartbeat
      : { everyMs: options.heartbeat.everyMs, text: frameText(options.heartbeat.frame) };
  const endUntaken = (chunks: AsyncGenerator<string>) =>
    withReadTimeout(chunks, clock, settings.stallMs, () => {
      request.logFields.errorCode = 'timeout';
      body.destroy();
    });
  const batches = inBatches(frames, clock, beat, key.revoked, request.id);
  const body = Readable.from(options.resumable ? endUntaken(batches) : batches, {
    objectMode: false,
    highWaterMark: 1,
  });
  key.revoked.addEventListener('abort', () => {
    const { reason } = key.revoked as { readonly reason: TorporError };
    request.logFields.errorCode = reason.code;
    request.deadline.end(reason);
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

/** A batch is sent when it has grown to this. */
const BATCH_CHARACTERS = 32 * 1024;

async function* inBatches(
  frames: AsyncGenerator<Frame>,
  clock: Clock,
  beat: Heartbeat,
  revoked: AbortSignal,
  requestId: string,
): AsyncGenerator<string> {
  // The head of the answer goes out with its first byte, and the caller waits for the head.
  yield ': connected\n\n';
  let next = frames.next();
  let timer = new AbortController();
  revoked.addEventListener('abort', () => timer.abort());
  try {
    while (!revoked.aborted) {
      timer = new AbortController();
      const quiet = clock.sleep(beat.everyMs, timer.signal).then(
        () => 'quiet' as const,
        () => 'quiet' as const,
      );
      const first = await Promise.race([next, quiet]);
      timer.abort();
      if (revoked.aborted) break;
      if (first === 'quiet') {
        yield beat.text;
        continue;
      }
      if (first.done) return;
      let batch = frameText(first.value);
      next = frames.next();
      const turn = setImmediate();
      while (batch.length < BATCH_CHARACTERS) {
        // A failure is met again, and thrown, once the batch is out.
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

/** Calls back when a chunk waits for longer than `stallMs` until the next one is asked for. */
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
