/** A server for tests: engine, database and app, real clock, two organisations, and all log lines. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type Database,
  type EngineDependencies,
  type Runtime,
  randomIds,
  type Settings,
  systemClock,
} from '@torpor/engine';
import {
  type DatabaseKind,
  type MemoryRuntimeOptions,
  makeWorld,
  type VirtualStore,
  type World,
} from '@torpor/engine/testing';
import { Images } from '@torpor/images';
import type { ErrorBody, SandboxId } from '@torpor/protocol';
import { encryptionKey, Secrets } from '@torpor/secrets';
import { DEFAULT_SESSION_SETTINGS, Sessions } from '@torpor/sessions';
import { DEFAULT_TEMPLATE_BUILD_SETTINGS, type TemplateBuildSettings } from '@torpor/template-builds';
import { DEFAULT_WEBHOOK_SETTINGS } from '@torpor/webhooks';
import type { InjectOptions, LightMyRequestResponse } from 'fastify';
import { type App, buildApp } from '../src/app.ts';
import { connectThrough } from '../src/cluster/follow-sandboxes.ts';
import { HostNames } from '../src/http/host-names.ts';
import { createKey } from '../src/keys/manage.ts';
import { openLog } from '../src/observe/log.ts';
import { Metrics } from '../src/observe/metrics.ts';
import { reportTo } from '../src/observe/report.ts';
import { type ServerTracing, tracingOff } from '../src/observe/tracing.ts';
import { createOrg } from '../src/orgs/manage.ts';
import { PageSessions } from '../src/page/page-sessions.ts';
import type { AppContext } from '../src/route-context.ts';
import { agentProcesses } from '../src/sandbox/agent-processes.ts';
import { agentTurnPort } from '../src/sessions/agent-turn-port.ts';
import { configureSettings } from '../src/settings/configured.ts';
import { DEFAULT_SERVER_SETTINGS, type ServerSettings } from '../src/settings.ts';
import { openTemplateBuilds } from '../src/template-builds/open-template-builds.ts';
import { openUploads } from '../src/uploads.ts';
import { openWebhooks } from '../src/webhooks/open-webhooks.ts';
import { AgentRuntime } from './agent-runtime.ts';

export interface TestServerOptions {
  readonly kind?: DatabaseKind;
  readonly runtime?: MemoryRuntimeOptions;
  readonly settings?: Partial<ServerSettings>;
  readonly engineSettings?: Partial<Settings>;
  readonly templateBuildSettings?: Partial<TemplateBuildSettings>;
  /** Replaces dependencies of the engine. */
  readonly wrap?: (ctx: EngineDependencies, runtime: AgentRuntime) => Partial<EngineDependencies>;
  /** Whether the session reconciler runs and retries waiting turns. */
  readonly sessionRounds?: boolean;
  /** Networks that webhooks may be sent to. Undefined: no webhook is sent. */
  readonly webhookNetworks?: readonly string[];
  readonly tracing?: ServerTracing;
  /** Networks that images may be fetched from. */
  readonly registryNetworks?: readonly string[];
  /** The configuration of Docker with the server's credentials for registries. */
  readonly dockerConfig?: string;
  readonly wrapApp?: (ctx: AppContext) => Partial<AppContext>;
}

export interface TestServer {
  readonly app: App;
  readonly ctx: AppContext;
  readonly world: World;
  readonly runtime: AgentRuntime;
  readonly uploadsDir: string;
  /** An operator key of the default organisation, a service key of another organisation, and the key of a user. */
  readonly keys: { readonly default: string; readonly other: string; readonly user: string };
  /** All log lines so far. */
  readonly log: string[];
  ask(
    method: NonNullable<InjectOptions['method']>,
    url: string,
    options?: AskOptions,
  ): Promise<LightMyRequestResponse>;
  /** Listens on a free port of this machine. */
  listen(): Promise<string>;
  /** Creates a sandbox and returns its id. */
  create(body?: unknown, key?: string): Promise<SandboxId>;
  dispose(): Promise<void>;
}

export interface AskOptions {
  readonly key?: string | null;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export async function testServer(options: TestServerOptions = {}): Promise<TestServer> {
  const log: string[] = [];
  const logger = openLog({ level: 'debug', destination: { write: (line: string) => void log.push(line) } });
  const metrics = new Metrics({ process: false });
  let runtime: AgentRuntime | undefined;
  const key = encryptionKey(randomBytes(32));
  const secretsOf = (db: Database) => new Secrets({ db, clock: systemClock, key, randomBytes });
  const world = await makeWorld(options.kind ?? 'sqlite', {
    ...(options.engineSettings === undefined ? {} : { settings: options.engineSettings }),
    parts: (base) => {
      runtime = new AgentRuntime({ ...options.runtime, files: base.store as VirtualStore });
      const ctx: EngineDependencies = {
        ...base,
        clock: systemClock,
        processes: agentProcesses,
        secrets: secretsOf(base.db),
        ids: randomIds,
        runtimes: new Map<string, Runtime>([[runtime.name, runtime]]),
        report: reportTo(logger, metrics),
        ...(options.tracing === undefined ? {} : { tracing: options.tracing }),
      };
      return { ...ctx, ...options.wrap?.(ctx, runtime) };
    },
  });
  const settings = { ...DEFAULT_SERVER_SETTINGS, ...options.settings };
  const uploadsDir = await mkdtemp(join(tmpdir(), 'torpor-uploads-'));
  const sessions = new Sessions({
    engine: world.engine,
    db: world.db,
    clock: systemClock,
    ids: randomIds,
    turnPort: agentTurnPort(connectThrough(world.engine)),
    serverId: 'test',
    alone: true,
    settings: DEFAULT_SESSION_SETTINGS,
    report: reportTo(logger, metrics),
    atFaultPoint: () => {},
  });
  await sessions.start({ rounds: options.sessionRounds ?? false });
  const webhooks = openWebhooks(
    {
      engine: world.engine,
      db: world.db,
      clock: systemClock,
      ids: randomIds,
      serverId: 'test',
      serverSecret: randomBytes(32),
      report: reportTo(logger, metrics),
      alone: true,
    },
    DEFAULT_WEBHOOK_SETTINGS,
    options.webhookNetworks ?? [],
  );
  await webhooks.start({ deliver: options.webhookNetworks !== undefined });
  const images = new Images({
    allowed: options.registryNetworks ?? [],
    clock: systemClock,
    dockerConfig: options.dockerConfig ?? join(uploadsDir, 'no-docker-config'),
  });
  const templateBuilds = openTemplateBuilds(
    {
      engine: world.engine,
      connect: connectThrough(world.engine),
      db: world.db,
      clock: systemClock,
      ids: randomIds,
      images,
      report: reportTo(logger, metrics),
      serverId: 'test',
    },
    { ...DEFAULT_TEMPLATE_BUILD_SETTINGS, ...options.templateBuildSettings },
    join(uploadsDir, 'template-files'),
  );
  const plain: AppContext = {
    engine: world.engine,
    sessions,
    webhooks,
    secrets: secretsOf(world.db),
    db: world.db,
    clock: systemClock,
    ids: randomIds,
    randomBytes,
    uploads: await openUploads(uploadsDir),
    images,
    templateBuilds,
    uploadSecret: randomBytes(32),
    uploadLinkMs: DEFAULT_TEMPLATE_BUILD_SETTINGS.linkMs,
    settings,
    settingsList: configureSettings([]).list,
    log: logger,
    metrics,
    tracing: options.tracing ?? tracingOff,
    version: '0.0.0-test',
    pageSessions: new PageSessions({
      db: world.db,
      clock: systemClock,
      randomBytes,
      secret: new Uint8Array(32),
      sessionMs: settings.pageSessionMs,
      linkMs: settings.pageLinkMs,
    }),
    hostNames: new HostNames({ host: '127.0.0.1', domain: 'sbx.localhost', machine: 'test', allowed: [] }),
  };
  const keyParts = { db: world.db, clock: systemClock, randomBytes };
  await createOrg(keyParts, { name: 'other' });
  const keys = {
    default: (await createKey(keyParts, 'default', { name: 'service', operator: true })).key,
    other: (await createKey(keyParts, 'other', { name: 'service' })).key,
    user: (await createKey(keyParts, 'default', { name: 'of ada', subject: 'ada' })).key,
  };
  const ctx = { ...plain, ...options.wrapApp?.(plain) };
  const app = await buildApp(ctx);
  const ask: TestServer['ask'] = (method, url, { key = keys.default, body, headers = {} } = {}) =>
    app.server.inject({
      method,
      url,
      headers: { ...(key === null ? {} : { authorization: `Bearer ${key}` }), ...headers },
      ...(body === undefined ? {} : { payload: body as NonNullable<InjectOptions['payload']> }),
    });
  return {
    app,
    ctx,
    world,
    runtime: runtime as AgentRuntime,
    uploadsDir,
    keys,
    log,
    ask,
    create: async (body = {}, key = keys.default) => {
      const created = await ask('POST', '/v1/sandboxes', { body, key });
      if (created.statusCode !== 201) throw new Error(created.body);
      return created.json<{ id: SandboxId }>().id;
    },
    listen: () => app.server.listen({ host: '127.0.0.1', port: 0 }),
    dispose: async () => {
      await app.stop();
      await sessions.stop();
      await webhooks.stop();
      await templateBuilds.stop();
      await world.dispose();
      await runtime?.dispose();
      await rm(uploadsDir, { recursive: true });
    },
  };
}

export function errorIn(response: LightMyRequestResponse): ErrorBody & { readonly requestId: string } {
  return response.json<{ error: ErrorBody & { requestId: string } }>().error;
}
