/** Turns of a session: kept when they are sent, delivered once, answered as a stream or in one piece. */
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
import type { RouteParts } from '../parts.ts';
import { sessionParams } from './sessions.ts';

const turnParams = sessionParams.extend({ turn: idSchema('turn') });
const STREAM =
  'As a stream: `stdout` and `stderr` with `data`, and `turn` whenever its state changes, the last of which ends it. ' +
  '`Last-Event-ID` goes on where a stream broke off.';

const reply = (description: string) => ({
  description: `${description} ${STREAM}`,
  content: { 'application/json': { schema: turnReplySchema }, 'text/event-stream': { schema: z.string() } },
});

export function turnRoutes(app: RoutesApp, parts: RouteParts): void {
  const { sessions } = parts;
  const tags = ['sessions'];

  app.post(
    '/v1/sessions/:id/turns',
    {
      schema: {
        operationId: 'sendTurn',
        summary: 'Say something to the program of a session',
        description:
          'It is kept from here on, and delivered once, now or as soon as the sandbox can be woken or replaced; ' +
          '`error` says what is in the way meanwhile. The `Idempotency-Key` counts for as long as the session.',
        tags,
        params: sessionParams,
        body: sendRequestSchema,
        response: {
          201: reply('It is kept.'),
          ...errors('not_found', 'conflict', 'idempotency_mismatch', 'quota_exceeded'),
        },
      },
    },
    async (request, response) => {
      const { id } = request.params;
      const { org } = request.identity;
      if (wantsEvents(request)) parts.streamLimit.take(request, response);
      const turn = await request.bound.run((signal) =>
        sessions.send(callerOf(request, signal), id, request.body.input),
      );
      response.code(201);
      if (wantsEvents(request)) return stream(parts, request, response, id, turn.id, -1);
      return request.bound.run(() => sessions.turn(org, id, turn.id));
    },
  );

  app.get(
    '/v1/sessions/:id/turns',
    {
      schema: {
        operationId: 'listTurns',
        summary: 'What was said and answered, oldest first',
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
      return request.bound.run(() => sessions.turns(request.identity.org, request.params.id, cursor, limit));
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
      const known = await request.bound.run(() => sessions.turn(request.identity.org, id, turn));
      if (!wantsEvents(request)) return known;
      return stream(parts, request, response, id, turn, afterOf(request));
    },
  );
}

function stream(
  parts: RouteParts,
  request: FastifyRequest,
  response: FastifyReply,
  id: SessionId,
  turn: TurnId,
  after: number,
): FastifyReply {
  const { org } = request.identity;
  const frames = async function* (): AsyncGenerator<Frame> {
    const signal = AbortSignal.any([request.bound.signal, parts.stopping]);
    for await (const event of parts.sessions.follow(org, id, turn, after, signal)) {
      if ('turn' in event) yield { event: 'turn', data: event.turn };
      else {
        const { position, channel, text } = event.chunk;
        yield { id: String(position), event: channel, data: { data: text } };
      }
    }
  };
  return sendEvents(parts, request, response, frames(), { resumable: true });
}

function afterOf(request: FastifyRequest): number {
  const last = request.headers['last-event-id'];
  if (last === undefined || last === '') return -1;
  const number = numberText.safeParse(last);
  if (number.success) return number.data;
  throw new TorporError('invalid_request', 'The Last-Event-ID is not a position in this answer.');
}
