/** The ledger: pages of lines, oldest first, or a stream that goes on where the reader stopped. */
import type { Cursor } from '@torpor/engine';
import { type EventView, eventViewSchema, pageOf, pageSchema, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { errors, limitQuery, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { type Frame, sendEvents, wantsEvents } from '../http/sse.ts';
import type { RouteContext } from '../route-context.ts';

/** A number that a database holds exactly. */
const numberSchema = z
  .string()
  .regex(/^\d{1,15}$/)
  .transform(Number);
const eventsQuery = z.strictObject({ limit: limitQuery, cursor: numberSchema.optional() });

const response = {
  200: {
    description:
      'One page, or with `Accept: text/event-stream` every event and every new one as it is written.',
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
        summary: 'What happened to a sandbox',
        description: 'Cursors and the `Last-Event-ID` of the stream are `seq`, up to the newest there is.',
        tags,
        params: sandboxParams,
        querystring: eventsQuery,
        response: { ...response, ...errors('not_found', 'quota_exceeded') },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      request.logFields.sandboxId = id;
      // The ledger of a stranger's sandbox is as absent as the sandbox (R104).
      await request.deadline.run(() => engine.get(request.identity.org, id));
      const after = startOf(request, request.query.cursor);
      return answer(ctx, request, reply, {
        limit: request.query.limit,
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
        summary: 'What happened to all sandboxes of the organisation',
        description:
          'Cursors and the `Last-Event-ID` of the stream are `position`, up to the newest there is.',
        tags,
        querystring: eventsQuery,
        response: { ...response, ...errors('quota_exceeded') },
      },
    },
    async (request, reply) => {
      const after = startOf(request, request.query.cursor);
      return answer(ctx, request, reply, {
        limit: request.query.limit,
        after,
        cursor: { org: request.identity.org, afterPosition: after },
        numberOf: ({ position }) => position,
      });
    },
  );
}

interface Wanted {
  readonly limit: number;
  /** The number of the event that the reader has last, in the cursor too. */
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

/** Whoever has read further than there is follows another ledger, and would wait for what this one never writes. */
async function refuseFutureCursor(
  { engine }: RouteContext,
  request: FastifyRequest,
  { after, cursor }: Wanted,
) {
  if (after === 0) return;
  const newest = await request.deadline.run(() => engine.newest(cursor));
  if (after <= newest) return;
  throw new TorporError('invalid_request', `There is no event ${after} yet: the newest is ${newest}.`, {
    hint: 'Is this another server, or another organisation? Then read from the beginning.',
    details: { newest },
  });
}

/** A stream that was broken off says itself where; that counts for more than where it once began. */
function startOf(request: FastifyRequest, cursor: number | undefined): number {
  const last = request.headers['last-event-id'];
  if (last === undefined || last === '') return cursor ?? 0;
  const number = numberSchema.safeParse(last);
  if (number.success) return number.data;
  throw new TorporError('invalid_request', 'The Last-Event-ID is not the number of an event.');
}
