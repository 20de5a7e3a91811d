/** The error shape of the builds API: `{detail, debug_id}`, without internal details. */
import { randomUUID } from 'node:crypto';
import { NotReady, PartExpired, ResumeFailed } from '@torpor/builds';
import { type ErrorCode, factsOf, isId, type RequestId, TorporError } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { answerOf } from '../http/error-answer.ts';
import type { RouteContext } from '../route-context.ts';

/** The build does not await a confirmation. The builds API answers this with 400 instead of 422. */
export class NotAwaitingConfirmation extends TorporError {
  constructor(message: string) {
    super('invalid_request', message);
  }
}

export function answerBuildFailure(
  { log, metrics }: Pick<RouteContext, 'log' | 'metrics'>,
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { error, headers, status: usual } = answerOf(thrown, request.id as RequestId);
  const status = statusOf(error, usual);
  const debugId = randomUUID();
  const { code, retryable } = error;
  metrics.failures.inc({ code, retryable: String(retryable) });
  // A URL that Fastify cannot read fails before the first hook has run.
  if (request.logFields) request.logFields.errorCode = code;
  const level = status < 500 ? 'info' : code === 'internal' ? 'error' : 'warn';
  log[level]({ event: 'build.request.failed', requestId: request.id, debugId, error: thrown }, error.message);
  reply.headers({
    ...headers,
    'x-request-id': request.id,
    'content-type': 'application/json; charset=utf-8',
  });
  if (!request.raw.complete) reply.header('connection', 'close');
  return reply.code(status).send(JSON.stringify({ detail: detailOf(error), debug_id: debugId }));
}

/** Whether the URL belongs to the builds API, also when no route exists for it. */
export function isBuildRequest(url: string): boolean {
  return /^\/api\/(generation|jobs)(?:[/?]|$)/.test(url);
}

function statusOf(error: TorporError, usual: number): number {
  if (error instanceof ResumeFailed) return 503;
  if (error instanceof NotReady) return 422;
  if (error instanceof NotAwaitingConfirmation) return 400;
  // A more specific status stays: 413, 415, 405.
  return usual === factsOf(error.code).http ? statusOfCode(error.code) : usual;
}

export function statusOfCode(code: ErrorCode): number {
  return code === 'invalid_request' ? 422 : factsOf(code).http;
}

function detailOf(error: TorporError): unknown {
  if (error instanceof ResumeFailed) return resumeDetail(error);
  if (error instanceof PartExpired) return { message: error.message, error_type: error.errorType };
  return error.code === 'internal' ? 'Internal server error' : error.message;
}

/** Of an internal error the caller sees only the code (R114). */
function resumeDetail({ message, errorType, retryable, platform }: ResumeFailed) {
  const { code, message: said, checkpointId } = platform.toBody();
  return {
    message,
    error_type: errorType,
    retryable,
    code,
    platform_message: code === 'internal' ? 'Something went wrong inside Torpor.' : said,
    ...(checkpointId === undefined ? {} : { checkpoint_id: checkpointId }),
  };
}

/**
 * Builds and tracked jobs have ids of the same kind. When the caller asks the builds API for a tracked job, the failure
 * says what that id is; every other failure is returned as it is.
 */
export async function explainTrackedJob(
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
