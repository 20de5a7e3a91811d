/** Errors as E2B's clients read them: a status, and a body that repeats the status as `code`. */
import { type ErrorCode, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { toTorporError } from '../http/error-answer.ts';
import { recordFailure } from '../http/failures.ts';
import type { RouteContext } from '../route-context.ts';

/**
 * A killed sandbox is 404, as with E2B. A lost sandbox and an unusable checkpoint are never 404, because a client that
 * gets 404 forgets the sandbox.
 */
const STATUS: Readonly<Record<ErrorCode, number>> = {
  not_found: 404,
  expired: 404,
  killed: 404,
  lost: 410,
  unreachable: 503,
  transitioning: 409,
  checkpoint_missing: 409,
  checkpoint_corrupt: 409,
  checkpoint_unreadable: 503,
  checkpoint_incompatible: 409,
  capability_unsupported: 501,
  conflict: 409,
  idempotency_mismatch: 422,
  quota_exceeded: 429,
  capacity: 503,
  storage_full: 507,
  storage_readonly: 503,
  in_use: 409,
  version_unsupported: 409,
  timeout: 504,
  port_closed: 502,
  no_answer: 502,
  invalid_request: 400,
  unauthenticated: 401,
  forbidden: 403,
  internal: 500,
};

export interface E2bError {
  readonly code: number;
  readonly message: string;
  /** Torpor's error code. Absent when it says no more than the status. */
  readonly error_code?: ErrorCode;
}

export function e2bError(error: TorporError): E2bError {
  const { code, message } = error;
  const shown = code === 'internal' ? 'Something went wrong inside Torpor.' : message;
  const body = { code: STATUS[code], message: shown };
  // Clients compare the whole body of a refused signature, so it has no extra field.
  return code === 'unauthenticated' ? body : { ...body, error_code: code };
}

export function answerE2bFailure(
  ctx: Pick<RouteContext, 'log' | 'metrics'>,
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const error = toTorporError(thrown);
  const body = e2bError(error);
  recordFailure(ctx, thrown, error, body.code, request);
  const { retryAfterMs } = error.toBody();
  // `Retry-After` has whole seconds.
  if (retryAfterMs !== undefined) reply.header('retry-after', Math.max(1, Math.ceil(retryAfterMs / 1_000)));
  if (!request.raw.complete) reply.header('connection', 'close');
  return reply.code(body.code).header('x-request-id', request.id).send(body);
}

export function notFound(what: string): TorporError {
  return new TorporError('not_found', `${what} was not found.`);
}
