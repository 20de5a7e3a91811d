/** The caller of an engine operation, from a request: organisation, idempotency key, and the signal that ends its wait. */
import type { Caller } from '@torpor/engine';
import { type Actor, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';

const KEY = /^[\x21-\x7e]{1,255}$/;

export function callerOf(request: FastifyRequest, signal: AbortSignal): Caller {
  const idempotencyKey = idempotencyKeyOf(request);
  return {
    org: request.identity.org,
    by: actorIn(request),
    signal,
    span: request.span,
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  };
}

/** The key and user of a request, for the audit. */
export function actorIn({ identity: { keyId, subject } }: FastifyRequest): Actor {
  return { keyId, subject };
}

export function idempotencyKeyOf(request: FastifyRequest): string | undefined {
  const given = request.headers['idempotency-key'];
  if (given === undefined) return undefined;
  if (typeof given === 'string' && KEY.test(given)) return given;
  throw new TorporError(
    'invalid_request',
    'The Idempotency-Key is not valid. It needs 1 to 255 visible ASCII characters without spaces.',
  );
}
