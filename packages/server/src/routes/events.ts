/** The ledger: pages of events, oldest first, or a stream that continues where the client stopped. */
import type { BackwardCursor, Cursor } from '@torpor/engine';
import { type EventView, eventViewSchema, pageOf, pageSchema, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { errors, limitQuery, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { type Frame, sendEvents, wantsEvents } from '../http/sse.ts';
import type { RouteContext } from '../route-context.ts';

/** A number that JavaScript and the databases hold exactly. */
const numberSchema = z
  .string()
  .regex(/^\d{1,15}$/)
  .transform(Number);
const eventsQuery = z.strictObject({
  limit: limitQuery,
  cursor: numberSchema.optional(),
  order: z
    .enum(['oldest', 'newest'])
    .default('oldest')
    .meta({ description: 'Which event of a page comes first. A stream always begins with the oldest.' }),
});

const response = {
  200: {
    description: 'One page. With `Accept: text/event-stream`, all events and then each new one.',
    content: {
      'application/json': { schema: pageSchema(eventViewSchema) },
      'text/event-stream': { schema: z.string() },
    },
  },
};

export function eventRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { engine } = ctx;
  const tags = ['events'];

  app.get(
    '/v1/sandboxes/:id/events',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'listSandboxEvents',
        summary: 'The events of a sandbox',
        description:
          'Cursors and the `Last-Event-ID` of the stream are `seq`, at most that of the newest event.',
        tags,
        params: sandboxParams,
        querystring: eventsQuery,
        response: { ...response, ...errors('not_found', 'quota_exceeded') },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      request.logFields.sandboxId = id;
      // The events of another organisation's sandbox are 404, like the sandbox itself (R104).
      await request.deadline.run(() => engine.get(request.identity.org, id));
      const { limit, cursor, order } = request.query;
      if (order === 'newest' && !wantsEvents(request)) {
        const before = { sandboxId: id, beforeSeq: cursor ?? BEYOND_ALL };
        return pageBackwards(ctx, request, before, limit, ({ seq }) => seq);
      }
      const after = startOf(request, cursor);
      return answer(ctx, request, reply, {
        limit,
        after,
        cursor: { sandboxId: id, afterSeq: after },
        numberOf: ({ seq }) => seq,
      });
    },
  );

  app.get(
    '/v1/events',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'listEvents',
        summary: 'The events of all sandboxes of the organisation',
        description:
          'Cursors and the `Last-Event-ID` of the stream are `position`, at most that of the newest event.',
        tags,
        querystring: eventsQuery,
        response: { ...response, ...errors('quota_exceeded') },
      },
    },
    async (request, reply) => {
      const { limit, cursor, order } = request.query;
      const { org } = request.identity;
      if (order === 'newest' && !wantsEvents(request)) {
        const before = { org, beforePosition: cursor ?? BEYOND_ALL };
        return pageBackwards(ctx, request, before, limit, ({ position }) => position);
      }
      const after = startOf(request, cursor);
      return answer(ctx, request, reply, {
        limit,
        after,
        cursor: { org, afterPosition: after },
        numberOf: ({ position }) => position,
      });
    },
  );
}

/** More than the number of any event. */
const BEYOND_ALL = Number.MAX_SAFE_INTEGER;

async function pageBackwards(
  { engine }: RouteContext,
  request: FastifyRequest,
  cursor: BackwardCursor,
  limit: number,
  numberOf: (event: EventView) => number,
) {
  const found = await request.deadline.run(() => engine.eventsBackwards(cursor, limit + 1));
  return pageOf(found, limit, (last) => String(numberOf(last)));
}

interface Wanted {
  readonly limit: number;
  /** The number of the last event that the client has; `cursor` has it too. */
  readonly after: number;
  readonly cursor: Cursor;
  readonly numberOf: (event: EventView) => number;
}

async function answer(ctx: RouteContext, request: FastifyRequest, reply: FastifyReply, wanted: Wanted) {
  const { engine, stopping } = ctx;
  const { limit, cursor, numberOf } = wanted;
  if (!wantsEvents(request)) {
    const found = await request.deadline.run(() => engine.events(cursor, limit + 1));
    if (found.length === 0) await refuseFutureCursor(ctx, request, wanted);
    return pageOf(found, limit, (last) => String(numberOf(last)));
  }
  await refuseFutureCursor(ctx, request, wanted);
  const follow = async function* (): AsyncGenerator<Frame> {
    const signal = AbortSignal.any([request.deadline.signal, stopping]);
    for await (const event of engine.follow(cursor, signal)) {
      yield { id: String(numberOf(event)), event: event.type, data: event };
    }
  };
  return sendEvents(ctx, request, reply, follow(), { resumable: true });
}

/** A cursor beyond the newest event comes from another ledger. Such a client would wait for events that never come. */
async function refuseFutureCursor(
  { engine }: RouteContext,
  request: FastifyRequest,
  { after, cursor }: Wanted,
) {
  if (after === 0) return;
  const newest = await request.deadline.run(() => engine.newest(cursor));
  if (after <= newest) return;
  throw new TorporError('invalid_request', `Event ${after} does not exist yet. The newest is ${newest}.`, {
    hint: 'The cursor may belong to another server or organisation. Then read from the beginning.',
    details: { newest },
  });
}

/** `Last-Event-ID` of a reconnecting client takes precedence over `cursor`, where the stream once began. */
function startOf(request: FastifyRequest, cursor: number | undefined): number {
  const last = request.headers['last-event-id'];
  if (last === undefined || last === '') return cursor ?? 0;
  const number = numberSchema.safeParse(last);
  if (number.success) return number.data;
  throw new TorporError('invalid_request', 'The Last-Event-ID is not the number of an event.');
}
