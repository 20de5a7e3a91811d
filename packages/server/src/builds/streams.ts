/** The streams of a build: typed events and log lines, with heartbeats and an end. */
import { isBuildOver } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Frame, sendEvents } from '../http/sse.ts';
import type { RouteContext } from '../route-context.ts';

type Owner = { readonly org: string; readonly user: string };

/**
 * For a finished build the stream has the last step and ends. A client that reconnects sends the last event it has and
 * gets everything after that event. Typed events continue after `ready` until the pause of the preview has succeeded
 * or failed.
 */
export async function streamEvents(
  ctx: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  owner: Owner,
  id: string,
  form: 'status' | 'typed',
): Promise<FastifyReply> {
  const { builds } = ctx;
  if (builds === undefined) throw new Error('There are no builds.');
  const signal = streamSignal(ctx, request);
  const current = await request.deadline.run(() => builds.lastStep(owner, id));
  const lastSeen = lastEventId(request);
  const onlyLast = form === 'status' || (lastSeen === undefined && isBuildOver(current.event.status));
  const after = onlyLast ? current.seq - 1 : (lastSeen ?? 0);
  const until = form === 'status' || (onlyLast && current.settled) ? 'over' : 'settled';
  const events = await builds.followEvents(owner, id, { after, until }, signal);
  const frames = async function* (): AsyncGenerator<Frame> {
    for await (const { seq, event } of events) {
      if (form === 'status' && event.type !== 'build.stage.started') continue;
      yield { id: String(seq), event: form === 'typed' ? event.type : 'message', data: event };
    }
  };
  return send(ctx, request, reply, frames(), ctx.settings.buildEventsBeatMs);
}

/** The last event that a reconnecting client has. */
function lastEventId(request: FastifyRequest): number | undefined {
  const text = /^\d{1,9}$/.exec(String(request.headers['last-event-id'] ?? ''))?.[0];
  return text === undefined ? undefined : Number(text);
}

export async function streamLogs(
  ctx: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  owner: Owner,
  id: string,
): Promise<FastifyReply> {
  const { builds } = ctx;
  if (builds === undefined) throw new Error('There are no builds.');
  const signal = streamSignal(ctx, request);
  const items = await request.deadline.run(() => builds.followLogs(owner, id, signal, lastEventId(request)));
  const frames = async function* (): AsyncGenerator<Frame> {
    for await (const item of items) {
      yield item.is === 'line'
        ? { id: String(item.line.id), event: 'log', data: item.line }
        : { event: 'done', data: { status: item.status } };
    }
  };
  return send(ctx, request, reply, frames(), ctx.settings.buildLogsBeatMs);
}

function streamSignal({ stopping }: RouteContext, request: FastifyRequest): AbortSignal {
  return AbortSignal.any([request.deadline.signal, stopping]);
}

function send(
  ctx: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  frames: AsyncGenerator<Frame>,
  everyMs: number,
) {
  reply.header('cache-control', 'no-cache');
  const heartbeat = { everyMs, frame: { event: 'heartbeat', data: {} } };
  return sendEvents(ctx, request, reply, frames, { resumable: true, heartbeat });
}
