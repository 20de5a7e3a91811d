/**
 * Processes behind a WebSocket: `GET …/{id}/terminal` and `GET …/{id}/exec`. The messages are described in
 * `@torpor/protocol`, terminal.ts.
 */
import { API_UPGRADE } from '@torpor/gateway';
import {
  type ExecSocketRequest,
  execSocketQuerySchema,
  type SandboxId,
  type TerminalQuery,
  TorporError,
  terminalQuerySchema,
} from '@torpor/protocol';
import type { FastifyRequest } from 'fastify';
import { errors, sandboxParams } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';
import { fromAgentError } from '../sandbox/agent-failure.ts';
import { startRequest } from '../sandbox/command.ts';
import { LiveSocket } from '../sockets/live-socket.ts';
import { type ProcessPlan, runSocketProcess } from '../sockets/socket-process.ts';
import { type AcceptedSocket, acceptUpgrade, routeUpgrades } from '../sockets/upgrade.ts';

/** Not every sandbox has bash. */
const LOGIN_SHELL = '[ -x /bin/bash ] && exec /bin/bash -l; exec /bin/sh -l';
const failures = errors(
  'not_found',
  'transitioning',
  'conflict',
  'killed',
  'lost',
  'quota_exceeded',
  'capacity',
  'capability_unsupported',
);

/** Adds the routes and sends upgrade requests to them. Call it once, where the other routes are added. */
export function attachTerminal(app: RoutesApp, ctx: RouteContext): void {
  const open = new Set<Promise<void>>();
  const track = (runProcessOn: Promise<void>) => {
    open.add(runProcessOn);
    void runProcessOn.finally(() => open.delete(runProcessOn));
  };
  // Behind the gateway only upgrades that are for the API of this node come here.
  routeUpgrades(app, ctx.gateway === undefined ? 'upgrade' : API_UPGRADE);
  // Fastify does not wait for upgraded connections when it closes.
  app.addHook('preClose', async () => void (await Promise.all(open)));
  const config = { deadline: 'lifecycle', changes: true } as const;
  const common = { tags: ['commands'], params: sandboxParams, response: failures };

  app.get(
    '/v1/sandboxes/:id/terminal',
    {
      config,
      exposeHeadRoute: false,
      schema: {
        operationId: 'openTerminal',
        summary: 'A terminal in a sandbox, over a WebSocket',
        description:
          'Binary frames are the bytes of the terminal in both directions. Text frames are JSON: `{"resize": …}` and ' +
          '`{"received": n}` to the server, `{"started": …}`, `{"exit": …}` and `{"error": …}` from it. The process ' +
          'ends with the connection. A paused sandbox is woken first, unless `wake` is `false`.',
        querystring: terminalQuerySchema,
        ...common,
      },
    },
    async (request, reply) => {
      const { params, query } = request;
      const live = openClientSocket(ctx, await acceptUpgrade(request, reply), query.window);
      track(session(ctx, request, live, params.id, async () => terminalPlan(ctx, query)));
      return reply;
    },
  );

  app.get(
    '/v1/sandboxes/:id/exec',
    {
      config,
      exposeHeadRoute: false,
      schema: {
        operationId: 'openExec',
        summary: 'A command with streaming input, over a WebSocket',
        description:
          'The first frame is `{"exec": …}` with the body of `POST …/exec`. Binary frames to the server are stdin. ' +
          'Binary frames from it begin with one byte, 1 for stdout and 2 for stderr. `{"closeStdin": true}` ends the ' +
          'input. The rest is as with a terminal.',
        querystring: execSocketQuerySchema,
        ...common,
      },
    },
    async (request, reply) => {
      const { params, query } = request;
      const live = openClientSocket(ctx, await acceptUpgrade(request, reply), query.window);
      track(session(ctx, request, live, params.id, () => execPlan(ctx, live)));
      return reply;
    },
  );
}

function openClientSocket(
  { clock, settings }: RouteContext,
  accepted: AcceptedSocket,
  window: number | undefined,
): LiveSocket {
  const live = new LiveSocket(accepted.webSocket, window);
  void live.keepAlive(clock, settings.heartbeatMs, accepted.bytesRead);
  return live;
}

async function session(
  ctx: RouteContext,
  request: FastifyRequest,
  live: LiveSocket,
  id: SandboxId,
  planned: () => Promise<ProcessPlan>,
): Promise<void> {
  const { metrics, stopping, keyWatch } = ctx;
  metrics.streams.inc();
  const key = keyWatch.watch(request.identity);
  const tell = (error: TorporError) => {
    request.logFields.errorCode ??= error.code;
    live.notice({ error: { ...error.toBody(), requestId: request.id } });
  };
  key.revoked.addEventListener('abort', () => {
    request.deadline.end(key.revoked.reason);
    tell(key.revoked.reason);
    live.end();
  });
  try {
    await runSocketProcess(ctx, request, live, id, await request.deadline.run(planned));
  } catch (thrown) {
    const isOurs = thrown instanceof TorporError;
    tell(stopping.aborted && !isOurs ? serverStops() : fromAgentError(thrown, id));
  } finally {
    live.end();
    key.release();
    metrics.streams.dec();
    logEnd(ctx, request);
  }
}

function serverStops(): TorporError {
  return new TorporError('unreachable', 'The server is stopping.', { retryAfterMs: 1_000 });
}

/** A request that became a socket has no response, so the usual log line is missing. */
function logEnd({ log, clock }: RouteContext, request: FastifyRequest): void {
  const { id: requestId, method, logFields, identity } = request;
  const route = request.routeOptions.url ?? 'unknown';
  const durationMs = Math.round(clock.monotonic() - request.startedAt);
  const { org, subject, keyId } = identity;
  log.info(
    {
      event: 'request',
      requestId,
      method,
      route,
      status: 101,
      durationMs,
      org,
      subject,
      keyId,
      ...logFields,
    },
    `${method} ${route} 101`,
  );
}

/** A terminal is interactive, so it ends when the server begins to stop. */
function terminalPlan(
  { stopping }: RouteContext,
  { cols, rows, command, cwd, user, wake }: TerminalQuery,
): ProcessPlan {
  const envs = { TERM: 'xterm-256color' };
  const process =
    command === undefined
      ? { cmd: '/bin/sh', args: ['-c', LOGIN_SHELL], envs, ...(cwd === undefined ? {} : { cwd }) }
      : startRequest({ command, cwd, env: envs, tag: '' }).process;
  return { process, terminal: { cols, rows }, user, wake: wake === 'true', until: stopping };
}

/** A command may finish while the server stops. */
async function execPlan({ forcedStop }: RouteContext, live: LiveSocket): Promise<ProcessPlan> {
  const { command, cwd, env, user, timeoutSeconds } = await firstRequest(live);
  const { process } = startRequest({ command, cwd, env, tag: '' });
  const timeoutMs = timeoutSeconds === undefined ? undefined : timeoutSeconds * 1_000;
  return { process, user, timeoutMs, until: forcedStop };
}

async function firstRequest(live: LiveSocket): Promise<ExecSocketRequest> {
  const first = await live.next();
  if (first !== undefined && 'request' in first && 'exec' in first.request) return first.request.exec;
  throw new TorporError('invalid_request', 'The first frame must be {"exec": …}.');
}
