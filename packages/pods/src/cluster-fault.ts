/**
 * What a failed call to the API server means. Only an answer of the API server itself that names the object proves that
 * the object is absent. Everything else (no answer, 401, 403, 429, 5xx, a 404 of a proxy) says nothing about it.
 */
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';

/** The body that Kubernetes sends with every error. */
export const apiStatusSchema = z.object({
  kind: z.string().optional(),
  reason: z.string().optional(),
  message: z.string().optional(),
  code: z.number().optional(),
  details: z.object({ name: z.string().optional(), kind: z.string().optional() }).optional(),
});
export type ApiStatus = z.infer<typeof apiStatusSchema>;

/** The API server answered, and not with what was asked for. */
export class ClusterFault extends TorporError {
  readonly status: number;
  readonly apiReason: string | undefined;

  constructor(status: number, body: ApiStatus | undefined, what: string) {
    const said = body?.message ?? `status ${status}`;
    super('unreachable', `The cluster did not ${what}: ${said}`, {
      hint: hintOf(status),
      details: { status, ...(body?.reason === undefined ? {} : { reason: body.reason }) },
    });
    this.status = status;
    this.apiReason = body?.kind === 'Status' ? body.reason : undefined;
  }
}

function hintOf(status: number): string {
  if (status === 401) return 'The credentials of the server are not valid in the cluster any more.';
  if (status === 403)
    return 'The service account of the server lacks a right, or a quota or policy refuses the object.';
  if (status === 429) return 'The API server is busy. Try again.';
  if (status === 422 || status === 400)
    return 'The cluster does not accept the object. Check the TORPOR_KUBERNETES_ settings.';
  return 'Try again when the API server answers.';
}

/** The API server could not be asked, or its answer was lost. A write may have happened. */
export function noAnswer(what: string, cause: unknown): TorporError {
  const said = cause instanceof Error ? cause.message : String(cause);
  return new TorporError('unreachable', `The cluster could not be asked to ${what}: ${said}`, {
    hint: 'Try again when the API server answers.',
    cause,
  });
}

/** The API server itself says that there is no such object. */
export function isAbsent(thrown: unknown): boolean {
  return thrown instanceof ClusterFault && thrown.status === 404 && thrown.apiReason === 'NotFound';
}

/** The object exists already, or was changed since it was read. */
export function isConflict(thrown: unknown): boolean {
  return thrown instanceof ClusterFault && thrown.status === 409;
}

/** The server does not serve this API group or version: there is no such path, so there is no `reason` of an object. */
export function isUnserved(thrown: unknown): boolean {
  return thrown instanceof ClusterFault && thrown.status === 404;
}
