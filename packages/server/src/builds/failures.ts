/** How failures look on this face: `{detail, debug_id}`, and nothing of what is inside. */
import { randomUUID } from 'node:crypto';
import { NotReady, ResumeFailed } from '@torpor/builds';
import type { RequestId } from '@torpor/protocol';
import { factsOf, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { answerOf } from '../http/error-answer.ts';
import type { RouteParts } from '../parts.ts';

/** A refusal that this face has a status of its own for. */
export class WrongMoment extends TorporError {
  constructor(message: string) {
    super('invalid_request', message);
  }
}

export function answerBuildFailure(
  { log, metrics }: Pick<RouteParts, 'log' | 'metrics'>,
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { error, headers } = answerOf(thrown, request.id as RequestId);
  const status = statusOf(error);
  const debugId = randomUUID();
  const { code, retryable } = error;
  metrics.failures.inc({ code, retryable: String(retryable) });
  request.facts.errorCode = code;
  const level = status < 500 ? 'info' : code === 'internal' ? 'error' : 'warn';
  log[level]({ event: 'build.request.failed', requestId: request.id, debugId, error: thrown }, error.message);
  reply.headers({ ...headers, 'content-type': 'application/json; charset=utf-8' });
  if (!request.raw.complete) reply.header('connection', 'close');
  return reply.code(status).send(JSON.stringify({ detail: detailOf(error), debug_id: debugId }));
}

function statusOf(error: TorporError): number {
  if (error instanceof ResumeFailed) return 503;
  if (error instanceof NotReady) return 422;
  if (error instanceof WrongMoment) return 400;
  return error.code === 'invalid_request' ? 422 : factsOf(error.code).http;
}

function detailOf(error: TorporError): unknown {
  if (error instanceof ResumeFailed) return { message: error.message, error_type: error.errorType };
  return error.code === 'internal' ? 'Internal server error' : error.message;
}
