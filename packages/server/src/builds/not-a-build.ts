/** Builds and tracked jobs have ids of one kind: whoever asks the builds API for the other kind is told so. */
import { isId, TorporError } from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import type { RouteContext } from '../route-context.ts';

/** The failure itself, or for the id of a tracked job one that says what it is. */
export async function explainNotABuild(
  { engine }: Pick<RouteContext, 'engine'>,
  thrown: unknown,
  request: FastifyRequest,
): Promise<unknown> {
  const { id } = (request.params ?? {}) as { readonly id?: unknown };
  const isNotFound = thrown instanceof TorporError && thrown.code === 'not_found';
  if (!isNotFound || typeof id !== 'string' || !isId('job', id)) return thrown;
  const job = await engine.job(request.identity.org, id).catch(() => undefined);
  if (job === undefined) return thrown;
  const what = job.kind === 'service' ? 'a service' : 'a background process';
  const message = `Job ${id} is ${what} of sandbox ${job.sandboxId}, not a build: see GET /v1/jobs/${id}.`;
  return new TorporError('not_found', message, { sandboxId: job.sandboxId });
}
