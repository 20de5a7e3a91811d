/** What the routes of the builds API share: the owner of a job, idempotency, and the errors in their schemas. */
import type { Owner } from '@torpor/builds';
import { buildErrorReplySchema, type ErrorCode, factsOf } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { json } from '../http/route-schema.ts';
import type { RouteContext } from '../route-context.ts';
import { statusOfCode } from './failures.ts';

/** Accepts any text: a text that is not a job id gets the same 404 as an unknown job. */
export const jobParams = z.object({
  id: z.string().max(200).meta({ description: 'The id of a job, which starts with job_' }),
});

export function ownerOf({ identity }: FastifyRequest): Owner {
  return { org: identity.org, user: identity.subject };
}

/** Runs `work` once per idempotency key. */
export function onceUnderKey<T>(
  ctx: RouteContext,
  request: FastifyRequest,
  work: () => Promise<T>,
): Promise<T> {
  const { id = '' } = (request.params ?? {}) as { readonly id?: string };
  const thing = `${request.identity.subject} ${id}`;
  return request.deadline.run(() => ctx.replays.once(request, thing, async () => ({ body: await work() })));
}

const ANY: readonly ErrorCode[] = [
  'invalid_request',
  'unauthenticated',
  'forbidden',
  'unreachable',
  'timeout',
  'internal',
];

/** The errors that a route may answer, by status, in the shape of the builds API. */
export function buildErrors(...codes: ErrorCode[]) {
  const byStatus = new Map<number, string[]>();
  for (const code of new Set([...ANY, ...codes])) {
    const status = statusOfCode(code);
    byStatus.set(status, [...(byStatus.get(status) ?? []), factsOf(code).hint]);
  }
  const answers = [...byStatus].map(([status, hints]) => [status, refusal(hints.join('\n'))] as const);
  return Object.fromEntries(answers);
}

/** The errors of both routes that start a build. */
export const startErrors = buildErrors(
  'not_found',
  'conflict',
  'quota_exceeded',
  'capacity',
  'capability_unsupported',
  'idempotency_mismatch',
  'expired',
);

export function refusal(description: string) {
  return json(description, buildErrorReplySchema);
}
