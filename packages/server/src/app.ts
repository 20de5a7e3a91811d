/** The HTTP APIs as one Fastify application. It does not listen yet, so a test can send requests to it directly. */
import swagger from '@fastify/swagger';
import { createPublicServer, type PublicServer } from '@torpor/gateway';
import { type FastifyServerFactory, fastify } from 'fastify';
import { serializerCompiler, validatorCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import { buildRoutes } from './builds/routes.ts';
import { e2bRoutes } from './e2b/routes.ts';
import { watchConnections } from './http/connections.ts';
import { addFailureHandlers, answerBrokenRequest, answerFailure } from './http/failures.ts';
import { acceptJson } from './http/json-body.ts';
import { KeyWatch } from './http/key-watch.ts';
import { Replays } from './http/replays.ts';
import { addRequestHooks } from './http/request-hooks.ts';
import type { RoutesApp } from './http/routes-app.ts';
import { StreamLimit } from './http/stream-limit.ts';
import { openapiOptions } from './openapi.ts';
import type { AppContext, RouteContext } from './route-context.ts';
import { auditRoutes } from './routes/audit.ts';
import { awakeRoutes } from './routes/awake.ts';
import { checkpointRoutes } from './routes/checkpoints.ts';
import { diskRoutes } from './routes/disk.ts';
import { engineCallRoutes } from './routes/engine-calls.ts';
import { eventRoutes } from './routes/events.ts';
import { execRoutes } from './routes/exec.ts';
import { fileRoutes } from './routes/files.ts';
import { fsckRoutes } from './routes/fsck.ts';
import { handOverRoutes } from './routes/hand-over.ts';
import { healthRoutes } from './routes/health.ts';
import { jobRoutes } from './routes/jobs.ts';
import { keyRoutes } from './routes/keys.ts';
import { lifecycleRoutes } from './routes/lifecycle.ts';
import { machineRoutes } from './routes/machine.ts';
import { mcpRoutes } from './routes/mcp.ts';
import { nodeRoutes } from './routes/nodes.ts';
import { operationRoutes } from './routes/operations.ts';
import { orgRoutes } from './routes/orgs.ts';
import { pageRoutes } from './routes/page.ts';
import { pageSessionRoutes } from './routes/page-session.ts';
import { portRoutes } from './routes/ports.ts';
import { previewLinkRoutes } from './routes/preview-links.ts';
import { processOutputRoutes } from './routes/process-output.ts';
import { processRoutes } from './routes/processes.ts';
import { runtimeRoutes } from './routes/runtimes.ts';
import { sandboxHealthRoutes } from './routes/sandbox-health.ts';
import { sandboxRoutes } from './routes/sandboxes.ts';
import { secretRoutes } from './routes/secrets.ts';
import { sessionRoutes } from './routes/sessions.ts';
import { settingRoutes } from './routes/settings.ts';
import { templateFileRoutes } from './routes/template-files.ts';
import { templateRoutes } from './routes/templates.ts';
import { attachTerminal } from './routes/terminal.ts';
import { turnRoutes } from './routes/turns.ts';
import { usageRoutes } from './routes/usage.ts';
import { webhookRoutes } from './routes/webhooks.ts';

const ROUTES = [
  sandboxRoutes,
  sandboxHealthRoutes,
  lifecycleRoutes,
  execRoutes,
  fileRoutes,
  processRoutes,
  processOutputRoutes,
  jobRoutes,
  portRoutes,
  previewLinkRoutes,
  checkpointRoutes,
  eventRoutes,
  operationRoutes,
  runtimeRoutes,
  templateRoutes,
  sessionRoutes,
  turnRoutes,
  webhookRoutes,
  secretRoutes,
  auditRoutes,
  mcpRoutes,
  keyRoutes,
  orgRoutes,
  nodeRoutes,
  usageRoutes,
  healthRoutes,
  pageRoutes,
  pageSessionRoutes,
  fsckRoutes,
  settingRoutes,
  awakeRoutes,
  diskRoutes,
  machineRoutes,
  buildRoutes,
  handOverRoutes,
  engineCallRoutes,
  templateFileRoutes,
];

/** Time for the answers to requests that a forced stop interrupts. */
const FORCED_STOP_MS = 1_000;

export interface App {
  readonly server: RoutesApp;
  /** Refuses new requests, ends streams, and waits for requests in progress for at most `settings.stopMs`. */
  stop(): Promise<void>;
}

export async function buildApp(given: AppContext): Promise<App> {
  const stopping = new AbortController();
  const forcedStop = new AbortController();
  const { db, clock, settings } = given;
  const ctx: RouteContext = {
    ...given,
    replays: new Replays({ db, clock, keptMs: settings.replayMs }),
    keyWatch: new KeyWatch({ db, clock, everyMs: settings.keyCheckMs }),
    streamLimit: new StreamLimit(settings.streamsPerKey),
    stopping: stopping.signal,
    forcedStop: forcedStop.signal,
  };
  const server = createServer(ctx);
  const connections = watchConnections(server.server as PublicServer);
  await server.register(swagger, openapiOptions(ctx.version));
  addRequestHooks(server, ctx);
  addFailureHandlers(server, ctx);
  acceptJson(server, settings.maxJsonBytes);
  await server.register(async (routes: RoutesApp) => {
    for (const addRoutes of ROUTES) addRoutes(routes, ctx);
    e2bRoutes(routes, ctx);
    attachTerminal(routes, ctx);
  });
  await server.ready();
  return {
    server,
    stop: async () => {
      stopping.abort();
      const stopTimer = new AbortController();
      const forceAfterTimeout = async () => {
        await clock.sleep(settings.stopMs, stopTimer.signal);
        forcedStop.abort();
        await clock.sleep(FORCED_STOP_MS, stopTimer.signal);
        connections.closeAll();
      };
      forceAfterTimeout().catch(() => {});
      connections.closeIdle();
      const previews = ctx.gateway?.stop(forcedStop.signal);
      await Promise.all([server.close(), previews]).finally(() => stopTimer.abort());
    },
  };
}

function createServer(ctx: RouteContext): RoutesApp {
  const { ids, gateway, tls } = ctx;
  const server = fastify({
    // Request ids are always made here. An id that a caller chose could repeat another one or hold anything.
    genReqId: () => ids.next('req'),
    requestIdHeader: false,
    logger: false,
    // The JSON parser has its own size limit; file uploads have none.
    bodyLimit: Number.MAX_SAFE_INTEGER,
    // While the server stops, requests on open connections get an error in the usual shape.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    frameworkErrors: (error, request, reply) => {
      answerFailure(ctx, error, request as never, reply as never);
    },
    clientErrorHandler: answerBrokenRequest(ctx),
    routerOptions: { maxParamLength: 200 },
    ...(gateway === undefined
      ? {}
      : {
          serverFactory: ((api) =>
            createPublicServer({ gateway, api, tls } as never)) as FastifyServerFactory,
        }),
  });
  server.setValidatorCompiler(validatorCompiler);
  server.setSerializerCompiler(serializerCompiler);
  return server.withTypeProvider<ZodTypeProvider>();
}
