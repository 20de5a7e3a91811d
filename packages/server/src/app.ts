/** The native API as one Fastify application. It listens to nothing yet, so that a test can ask it directly. */
import swagger from '@fastify/swagger';
import { createPublicServer, type PublicServer } from '@torpor/gateway';
import { type FastifyServerFactory, fastify } from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import { buildRoutes } from './builds/routes.ts';
import { e2bRoutes } from './e2b/routes.ts';
import { fsckRoutes } from './fsck.ts';
import { watchConnections } from './http/connections.ts';
import { addFailureHandlers, answerBrokenRequest, answerFailure } from './http/failures.ts';
import { acceptJson } from './http/json-body.ts';
import { KeyWatch } from './http/key-watch.ts';
import { Replays } from './http/replays.ts';
import { addRequestHooks } from './http/request-hooks.ts';
import type { RoutesApp } from './http/routes-app.ts';
import { StreamLimit } from './http/stream-limit.ts';
import { openapiOptions } from './openapi.ts';
import type { AppParts, RouteParts } from './parts.ts';
import { portRoutes } from './port-list.ts';
import { processOutputRoutes } from './process-output.ts';
import { awakeRoutes } from './routes/awake.ts';
import { catalogueRoutes } from './routes/catalogue.ts';
import { checkpointRoutes } from './routes/checkpoints.ts';
import { diskRoutes } from './routes/disk.ts';
import { eventRoutes } from './routes/events.ts';
import { execRoutes } from './routes/exec.ts';
import { fileRoutes } from './routes/files.ts';
import { healthRoutes } from './routes/health.ts';
import { jobRoutes } from './routes/jobs.ts';
import { keyRoutes } from './routes/keys.ts';
import { lifecycleRoutes } from './routes/lifecycle.ts';
import { operationRoutes } from './routes/operations.ts';
import { orgRoutes } from './routes/orgs.ts';
import { previewLinkRoutes } from './routes/preview-links.ts';
import { processRoutes } from './routes/processes.ts';
import { sandboxHealthRoutes } from './routes/sandbox-health.ts';
import { sandboxRoutes } from './routes/sandboxes.ts';
import { sessionRoutes } from './routes/sessions.ts';
import { settingRoutes } from './routes/settings.ts';
import { templateRoutes } from './routes/templates.ts';
import { turnRoutes } from './routes/turns.ts';
import { usageRoutes } from './routes/usage.ts';
import { attachTerminal } from './terminal.ts';

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
  catalogueRoutes,
  templateRoutes,
  sessionRoutes,
  turnRoutes,
  keyRoutes,
  orgRoutes,
  usageRoutes,
  healthRoutes,
  fsckRoutes,
  settingRoutes,
  awakeRoutes,
  diskRoutes,
  buildRoutes,
];

/** For answers to those whose request is cut short. */
const LEAVING_MS = 1_000;

export interface App {
  readonly server: RoutesApp;
  /** Takes no more requests, ends streams, and waits for what is under way, up to its bound. */
  stop(): Promise<void>;
}

export async function buildApp(given: AppParts): Promise<App> {
  const stopping = new AbortController();
  const leaving = new AbortController();
  const { db, clock, settings } = given;
  const parts: RouteParts = {
    ...given,
    replays: new Replays({ db, clock, keptMs: settings.replayMs }),
    keyWatch: new KeyWatch({ db, clock, everyMs: settings.keyCheckMs }),
    streamLimit: new StreamLimit(settings.streamsPerKey),
    stopping: stopping.signal,
    leaving: leaving.signal,
  };
  const server = createServer(parts);
  const connections = watchConnections(server.server as PublicServer);
  await server.register(swagger, openapiOptions(parts.version));
  addRequestHooks(server, parts);
  addFailureHandlers(server, parts);
  acceptJson(server, settings.maxJsonBytes);
  await server.register(async (routes: RoutesApp) => {
    for (const addRoutes of ROUTES) addRoutes(routes, parts);
    e2bRoutes(routes, parts);
    attachTerminal(routes, parts, (request) => parts.gateway?.takes(request) ?? false);
  });
  await server.ready();
  return {
    server,
    stop: async () => {
      stopping.abort();
      const patience = new AbortController();
      const insist = async () => {
        await clock.sleep(settings.stopMs, patience.signal);
        leaving.abort();
        await clock.sleep(LEAVING_MS, patience.signal);
        connections.closeAll();
      };
      insist().catch(() => {});
      connections.closeIdle();
      const visitors = parts.gateway?.stop(leaving.signal);
      await Promise.all([server.close(), visitors]).finally(() => patience.abort());
    },
  };
}

function createServer(parts: RouteParts): RoutesApp {
  const { ids, gateway, tls } = parts;
  const server = fastify({
    // Ours are the only ids: one that a caller chose could be anybody's, or anything.
    genReqId: () => ids.next('req'),
    requestIdHeader: false,
    logger: false,
    // The parser of bodies keeps its own bound, and files have none.
    bodyLimit: Number.MAX_SAFE_INTEGER,
    // While stopping, requests on open connections get an answer in the usual shape.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    frameworkErrors: (error, request, reply) => {
      answerFailure(parts, error, request as never, reply as never);
    },
    clientErrorHandler: answerBrokenRequest(parts),
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
  return server as unknown as RoutesApp;
}
