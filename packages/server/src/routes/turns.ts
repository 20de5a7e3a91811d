/** Turns of a session: stored when they are sent, delivered once, answered as a stream or in one piece. */
import {
  idSchema,
  pageSchema,
  type SessionId,
  sendRequestSchema,
  TorporError,
  type TurnId,
  turnReplySchema,
} from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { callerOf } from '../http/caller.ts';
import { errors, numberedPageQuery, numberText } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import { type Frame, sendEvents, wantsEvents } from '../http/sse.ts';
import type { RouteContext } from '../route-context.ts';
import { sessionParams } from './sessions.ts';

const turnParams = sessionParams.extend({ turn: idSchema('turn') });
const STREAM =
  'As a stream: `stdout` and `stderr` with `data`, and `turn` after each change of its state. The last `turn` ends it. ' +
  '`Last-Event-ID` continues an interrupted stream.';

const reply = (description: string) => ({
  description: `${description} ${STREAM}`,
  content: { 'application/json': { schema: turnReplySchema }, 'text/event-stream': { schema: z.string() } },
});

export function turnRoutes(app: RoutesApp, ctx: RouteContext): void {
  const { sessions } = ctx;
  const tags = ['sessions'];

  app.post(
    '/v1/sessions/:id/turns',
    {
      schema: {
        operationId: 'sendTurn',
        summary: 'Send a turn to the program of a session',
        description:
          'The turn is stored and delivered once, now or as soon as the sandbox can be woken or replaced. ' +
          '`error` says why it has to wait. The `Idempotency-Key` is valid for the life of the session.',
        tags,
        params: sessionParams,
        body: sendRequestSchema,
        response: {
          201: reply('The stored turn.'),
          ...errors('not_found', 'conflict', 'idempotency_mismatch', 'quota_exceeded'),
        },
      },
    },
    async (request, response) => {
      const { id } = request.params;
      const { org } = request.identity;
      if (wantsEvents(request)) ctx.streamLimit.take(request, response);
      const turn = await request.deadline.run((signal) =>
        sessions.send(callerOf(request, signal), id, request.body.input),
      );
      response.code(201);
      if (wantsEvents(request)) return stream(ctx, request, response, id, turn.id, -1);
      return request.deadline.run(() => sessions.turn(org, id, turn.id));
    },
  );

  app.get(
    '/v1/sessions/:id/turns',
    {
      schema: {
        operationId: 'listTurns',
        summary: 'The turns of a session and their answers, oldest first',
        tags,
        params: sessionParams,
        querystring: numberedPageQuery,
        response: {
          200: {
            description: 'One page. Cursors are `seq`.',
            content: { 'application/json': { schema: pageSchema(turnReplySchema) } },
          },
          ...errors('not_found'),
        },
      },
    },
    async (request) => {
      const { limit, cursor = 0 } = request.query;
      return request.deadline.run(() =>
        sessions.turns(request.identity.org, request.params.id, cursor, limit),
      );
    },
  );

  app.get(
    '/v1/sessions/:id/turns/:turn',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'getTurn',
        summary: 'One turn and its answer so far',
        tags,
        params: turnParams,
        response: { 200: reply('The turn.'), ...errors('not_found', 'quota_exceeded') },
      },
    },
    async (request, response) => {
      const { id, turn } = request.params;
      const known = await request.deadline.run(() => sessions.turn(request.identity.org, id, turn));
      if (!wantsEvents(request)) return known;
      return stream(ctx, request, response, id, turn, afterOf(request));
    },
  );
}

function stream(
  ctx: RouteContext,
  request: FastifyRequest,
  response: FastifyReply,
  id: SessionId,
  turn: TurnId,
  after: number,
): FastifyReply {
  const { org } = request.identity;
  const frames = async function* (): AsyncGenerator<Frame> {
    const signal = AbortSignal.any([request.deadline.signal, ctx.stopping]);
    for await (const event of ctx.sessions.follow(org, id, turn, after, signal)) {
      if ('turn' in event) yield { event: 'turn', data: event.turn };
      else {
        const { position, channel, text } = event.chunk;
        yield { id: String(position), event: channel, data: { data: text } };
      }
    }
  };
  return sendEvents(ctx, request, response, frames(), { resumable: true });
}

function afterOf(request: FastifyRequest): number {
  const last = request.headers['last-event-id'];
  if (last === undefined || last === '') return -1;
  const number = numberText.safeParse(last);
  if (number.success) return number.data;
  throw new TorporError('invalid_request', 'The Last-Event-ID is not a position in this answer.');
}
