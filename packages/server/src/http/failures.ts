/** Answers every failure of routes, of Fastify and of Node's HTTP parser in one shape. The builds API has its own shape. */
import type { Socket } from 'node:net';
import { type RequestId, TorporError } from '@torpor/protocol';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { answerBuildFailure, explainTrackedJob, isBuildRequest } from '../builds/failures.ts';
import type { RouteContext } from '../route-context.ts';
import { answerOf, HttpRefusal } from './error-answer.ts';

export function addFailureHandlers(app: FastifyInstance, ctx: RouteContext): void {
  const methodsOf = watchRouteMethods(app);
  app.setErrorHandler(async (thrown: FastifyError, request, reply) => {
    const failure = isBuildRequest(request.url) ? await explainTrackedJob(ctx, thrown, request) : thrown;
    return answerFailure(ctx, failure, request, reply);
  });
  app.setNotFoundHandler((request, reply) => {
    const allowed = methodsOf(request.url);
    if (allowed.length === 0) throw new TorporError('not_found', `Nothing is at ${pathOf(request.url)}.`);
    reply.header('allow', allowed.join(', '));
    throw new HttpRefusal(
      405,
      `${request.method} is not allowed here.`,
      `Allowed here: ${allowed.join(', ')}.`,
    );
  });
}

/**
 * Returns a function that lists the methods of a path, so that a wrong method (405) differs from an unknown path (404).
 * Call it before the routes are registered.
 */
function watchRouteMethods(app: FastifyInstance): (url: string) => string[] {
  const known = new Map<string, { readonly form: RegExp; readonly methods: Set<string> }>();
  app.addHook('onRoute', ({ url, method }) => {
    const form = new RegExp(`^${url.replace(/:[A-Za-z]+/g, '[^/]+')}$`);
    const entry = known.get(url) ?? { form, methods: new Set<string>() };
    for (const one of [method].flat()) entry.methods.add(one);
    known.set(url, entry);
  });
  return (url) => {
    const path = url.split('?', 1)[0] ?? '';
    const methods = [...known.values()]
      .filter(({ form }) => form.test(path))
      .flatMap((entry) => [...entry.methods]);
    return [...new Set(methods)].sort();
  };
}

export function answerFailure(
  ctx: Pick<RouteContext, 'log' | 'metrics'>,
  thrown: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  // Also for requests that reach no route: an unknown path, or a URL that cannot be parsed.
  if (isBuildRequest(request.url)) return answerBuildFailure(ctx, thrown, request, reply);
  const { status, headers, body, error } = answerOf(
    thrown,
    request.id as RequestId,
    request.logFields?.sandboxId,
  );
  recordFailure(ctx, thrown, error, status, request);
  reply.headers({
    ...headers,
    'x-request-id': request.id,
    'content-type': 'application/json; charset=utf-8',
  });
  // The unread rest of a body must not be taken for the next request.
  if (!request.raw.complete) reply.header('connection', 'close');
  return reply.code(status).send(body);
}

/** Records a failure in the log and the metrics. */
export function recordFailure(
  ctx: Pick<RouteContext, 'log' | 'metrics'>,
  thrown: unknown,
  error: TorporError,
  status: number,
  request: FastifyRequest,
): void {
  const { code, retryable, ...shown } = error.toBody();
  ctx.metrics.failures.inc({ code, retryable: String(retryable) });
  // A URL that Fastify cannot parse fails before the first hook runs, so `logFields` may be missing.
  if (request.logFields) {
    request.logFields.errorCode = code;
    if (shown.sandboxId !== undefined) request.logFields.sandboxId ??= shown.sandboxId;
    if (shown.operationId !== undefined) request.logFields.operationId ??= shown.operationId;
  }
  if (status >= 500) {
    const level = code === 'internal' ? 'error' : 'warn';
    ctx.log[level]({ requestId: request.id, event: 'request.failed', error: thrown }, error.message);
  }
}

const PARSER_STATUS: Readonly<Record<string, readonly [status: number, message: string]>> = {
  HPE_HEADER_OVERFLOW: [431, 'The headers are too large.'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'The request did not arrive in time.'],
};

/** Answers bytes that are not HTTP. There is no request object, only a socket. */
export function answerBrokenRequest(ctx: Pick<RouteContext, 'ids' | 'log'>) {
  return (error: Error & { code?: string }, socket: Socket): void => {
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const id = ctx.ids.next('req');
    const [wanted, message] = PARSER_STATUS[error.code ?? ''] ?? [400, 'This is not HTTP.'];
    const { status, body } = answerOf(new HttpRefusal(wanted, message, 'Correct the request.'), id);
    ctx.log.info({ event: 'request', requestId: id, status, code: 'invalid_request' }, message);
    socket.end(
      [
        `HTTP/1.1 ${status} Refused`,
        `X-Request-Id: ${id}`,
        'Content-Type: application/json; charset=utf-8',
        `Content-Length: ${Buffer.byteLength(body)}`,
        'Connection: close',
        '',
        body,
      ].join('\r\n'),
    );
  };
}

function pathOf(url: string): string {
  return (url.split('?', 1)[0] ?? '').slice(0, 200);
}
