/** Assembles a server and lets it listen. When a step fails, the earlier steps are undone. */
import { randomBytes } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Server as TlsServer } from 'node:tls';
import type { BuildContext } from '@torpor/builds';
import { adoptDataDirectory, openDirectoryStore } from '@torpor/checkpoint-store';
import { claimDataDirectory, migrate, openPostgres, openSqlite } from '@torpor/database';
import {
  connectionNameOf,
  createEngine,
  DiskReserve,
  type Engine,
  type FaultPoints,
  randomIds,
  systemClock,
} from '@torpor/engine';
import {
  type LocalCertificate,
  localCertificate,
  readCertificateFiles,
  watchCertificateFiles,
} from '@torpor/gateway';
import { errnoOf } from '@torpor/host';
import { Images } from '@torpor/images';
import { type Capabilities, DEFAULT_ORG, TorporError } from '@torpor/protocol';
import { encryptionKey, Secrets } from '@torpor/secrets';
import { Sessions } from '@torpor/sessions';
import manifest from '../package.json' with { type: 'json' };
import { type App, buildApp } from './app.ts';
import { refuseUnfinishedRestore } from './backup/restore.ts';
import { EngineSandboxes } from './builds/engine-sandboxes.ts';
import { openBuilds } from './builds/open-builds.ts';
import { PreviewClient } from './builds/preview-client.ts';
import { followSandboxes } from './cluster/follow-sandboxes.ts';
import { clusterSecretsOf, openCluster, sharedPodHome } from './cluster/open-cluster.ts';
import { remoteUploads } from './cluster/remote-uploads.ts';
import { ensureSharedSecret } from './cluster/shared-secret.ts';
import type { ServerConfig } from './config.ts';
import { HostNames } from './http/host-names.ts';
import { hashKey, keyIdOf } from './keys/api-key.ts';
import { ensureFirstKey, type FirstKey } from './keys/first-key.ts';
import { ensureSecret } from './keys/server-secret.ts';
import { ALL_MIGRATIONS } from './migrations.ts';
import { watchLedger } from './observe/ledger-watch.ts';
import type { Log } from './observe/log.ts';
import { Metrics } from './observe/metrics.ts';
import { reportTo } from './observe/report.ts';
import { openTracing } from './observe/tracing.ts';
import { pageLink } from './page/page-link.ts';
import { PageSessions } from './page/page-sessions.ts';
import { openPageSource } from './page/page-source.ts';
import { openGateway } from './preview/open-gateway.ts';
import { type ChosenRuntime, chooseRuntime, guardTargetsOf } from './runtime-choice.ts';
import { agentProcesses } from './sandbox/agent-processes.ts';
import { agentTurnPort } from './sessions/agent-turn-port.ts';
import { openReplicas, sharedDataKey } from './store/open-replicas.ts';
import { openTemplateBuilds } from './template-builds/open-template-builds.ts';
import { openUploads } from './uploads.ts';
import { openWebhooks } from './webhooks/open-webhooks.ts';

export interface RunningServer {
  readonly url: string;
  /** The domain of previews, with its port. */
  readonly domain: string;
  /** The certificate authority that clients must trust. Absent without TLS. */
  readonly authorityFile?: string;
  readonly config: ServerConfig;
  readonly key: FirstKey;
  /** The page for people. At the first start it is a one-time link. */
  readonly pageUrl: string;
  readonly runtime: {
    readonly name: string;
    readonly capabilities: Capabilities;
    readonly limits: readonly string[];
  };
  /** Finishes requests and operations within their time limits. Running sandboxes continue to run. */
  stop(): Promise<void>;
}

export interface StartOptions {
  readonly log: Log;
  readonly faults: FaultPoints;
  /** The variables of OpenTelemetry. Absent: nothing is traced. */
  readonly env?: NodeJS.ProcessEnv;
  /** Replaces the choice of the runtime in tests. */
  readonly choose?: typeof chooseRuntime;
}

export async function startServer(config: ServerConfig, options: StartOptions): Promise<RunningServer> {
  await using cleanup = new AsyncDisposableStack();
  const { dataDir } = config;
  const { settings, list: settingsList } = config.configured;
  await refuseUnfinishedRestore(dataDir);
  const reserve = await DiskReserve.open(join(dataDir, 'reserve'), settings.engine.diskReserveBytes);
  const directory = await claimDataDirectory(dataDir, systemClock, () => reserve.releaseForStart());
  cleanup.defer(() => directory.release());
  const db = await openDatabase(config, reserve);
  cleanup.defer(() => db.close());
  await migrate(db, ALL_MIGRATIONS);
  await adoptDataDirectory(dataDir);
  const store = await openDirectoryStore({ root: join(dataDir, 'checkpoints') });
  const metrics = new Metrics();
  const report = reportTo(options.log, metrics);
  const clusterSecrets = clusterSecretsOf(config);
  const secret =
    clusterSecrets === undefined
      ? await ensureSecret(dataDir, randomBytes)
      : await ensureSharedSecret({
          db,
          clock: systemClock,
          randomBytes,
          clusterSecrets,
          dataDir,
          dataDirectoryId: directory.id,
        });
  const secrets = new Secrets({ db, clock: systemClock, key: encryptionKey(secret), randomBytes });
  const choose = options.choose ?? chooseRuntime;
  const home = sharedPodHome(config, secret);
  const chosen = await choose(config, store, systemClock, report, options.faults, secrets, home);
  cleanup.defer(() => chosen.close?.());
  const cluster =
    clusterSecrets === undefined
      ? undefined
      : await openCluster(config, {
          version: manifest.version,
          targets: await guardTargetsOf(chosen, dataDir),
          secrets: clusterSecrets,
          report,
        });
  cleanup.defer(() => cluster?.release());
  const serverId = `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`;
  const tracing = await openTracing(options.env ?? {}, {
    version: manifest.version,
    serverId,
    report,
  });
  // Deferred before the engine, so that it stops after the last operation.
  cleanup.defer(() => tracing.stop());
  const shared = { db, clock: systemClock, randomBytes, log: options.log, metrics, tracing };
  // Engine and gateway need each other: the engine closes the gateway's gates, the gateway wakes sandboxes.
  const gateway = openGateway({
    ...shared,
    engine: () => engine,
    ids: randomIds,
    secret,
    settings: settings.gateway,
    signer: cluster?.signer,
  });
  const engine: Engine = createEngine({
    db,
    store,
    runtimes: new Map([chosen.runtime, ...(chosen.others ?? [])].map((one) => [one.name, one])),
    defaultRuntime: chosen.runtime.name,
    gate: gateway.gates,
    clock: systemClock,
    processes: agentProcesses,
    secrets,
    ids: randomIds,
    settings: settings.engine,
    faults: options.faults,
    report,
    tracing,
    serverId,
    // A node has its data directory for itself.
    ownsDataDirectory: config.database === undefined || config.node !== undefined,
    dataDirectoryId: directory.id,
    reserve,
    replicas: await openReplicas(config, store, db, settings.store, sharedDataKey(config, secret)),
    storeSettings: settings.store,
    durability: config.durability,
    cluster: cluster?.options,
  });
  cleanup.defer(await watchLedger({ db, serverId, log: options.log, metrics }));
  cleanup.defer(() => stopEngine(engine, settings.server.stopMs, options.log));
  await engine.start();
  const upgrades = chosen.beginUpgrades?.({
    renewTemplates: () => engine.renewTemplates(),
    showPhase: (phase) => {
      engine
        .setTemplatePhase(chosen.upgraded ?? chosen.runtime.name, 'base', phase)
        .catch((error: unknown) => report('the progress of a template could not be written', { error }));
    },
  });
  cleanup.defer(() => upgrades?.stop());
  const alone = config.database === undefined;
  const followed = followSandboxes({
    engine,
    clock: systemClock,
    signer: cluster?.signer,
    accessToken: (id) => gateway.tokens.accessToken(id),
  });
  const sessions = new Sessions({
    engine: followed.engine,
    db,
    clock: systemClock,
    ids: randomIds,
    turnPort: agentTurnPort(followed.connect),
    settings: settings.sessions,
    serverId,
    alone,
    report,
    atFaultPoint: (point) => options.faults.pass(point),
  });
  cleanup.defer(() => sessions.stop());
  await sessions.start();
  const webhooks = openWebhooks(
    { engine, db, clock: systemClock, ids: randomIds, serverId, serverSecret: secret, report, alone },
    settings.webhooks,
    config.webhookNetworks ?? [],
    (point) => options.faults.pass(point),
  );
  cleanup.defer(() => webhooks.stop());
  await webhooks.start();
  const key = await ensureFirstKey({ db, clock: systemClock, randomBytes }, dataDir, config.apiKey);
  const certificate = config.tls ? await certificateFor(config) : undefined;
  const previews = new PreviewClient();
  const sandboxes = new EngineSandboxes({
    ...followed,
    here: engine,
    gateway,
    previews,
    clock: systemClock,
    ids: randomIds,
    settings: settings.runtimes,
  });
  const pass: BuildContext['pass'] = (point) => options.faults.pass(point);
  const builds = openBuilds({ ...shared, ids: randomIds, sandboxes, report, pass, serverId, alone }, config);
  cleanup.defer(() => builds.stop());
  const images = new Images({ allowed: config.registryNetworks ?? [], clock: systemClock });
  const templateBuilds = openTemplateBuilds(
    {
      ...followed,
      db,
      clock: systemClock,
      ids: randomIds,
      images,
      report,
      serverId,
      elsewhere: cluster === undefined ? undefined : remoteUploads(engine, cluster.signer),
    },
    settings.templateBuilds,
    join(dataDir, 'template-files'),
  );
  cleanup.defer(() => templateBuilds.stop());
  await templateBuilds.start();
  const { pageSessionMs: sessionMs, pageLinkMs: linkMs } = settings.server;
  const pageSessions = new PageSessions({ ...shared, secret, sessionMs, linkMs });
  const app = await buildApp({
    ...shared,
    engine,
    sessions,
    webhooks,
    secrets,
    ids: randomIds,
    uploads: await openUploads(join(dataDir, 'uploads')),
    images,
    templateBuilds,
    uploadSecret: secret,
    uploadLinkMs: settings.templateBuilds.linkMs,
    settings: settings.server,
    settingsList,
    version: manifest.version,
    hostNames: new HostNames({
      host: config.host,
      domain: config.domain ?? DEFAULT_DOMAIN,
      machine: hostname(),
      allowed: config.allowedHosts ?? [],
    }),
    pageSessions,
    page: openPageSource(),
    gateway,
    builds,
    ...(chosen.host === undefined ? {} : { host: chosen.host }),
    ...(upgrades === undefined ? {} : { rebuildBase: upgrades.rebuildBase }),
    ...(certificate === undefined ? {} : { tls: certificate }),
  });
  cleanup.defer(() => app.stop());
  const { certificateFiles: files } = config;
  if (files !== undefined && certificate !== undefined) {
    const stopped = new AbortController();
    cleanup.defer(() => stopped.abort());
    const secure = app.server.server as unknown as TlsServer;
    void watchCertificateFiles({
      files,
      current: certificate,
      clock: systemClock,
      everyMs: settings.server.certificateEveryMs,
      // New connections get the new certificate; open ones stay as they are.
      onChange: (renewed) => secure.setSecureContext(renewed),
      report,
      signal: stopped.signal,
    });
  }
  const url = await listen(app, config);
  const domain = config.domain ?? (url.port === '' ? DEFAULT_DOMAIN : `${DEFAULT_DOMAIN}:${url.port}`);
  gateway.setPublicAddress({ domain, scheme: config.tls ? 'https' : 'http' });
  previews.setAddress(url);
  await builds.start();
  cleanup.defer(await writeAddressFile(dataDir, url.origin, config.store));
  if (config.drainOnStop)
    cleanup.defer(() => drainBeforeStop(engine, settings.engine.nodeDrainMs, options.log));
  const running = cleanup.move();
  return {
    url: url.origin,
    domain,
    ...(certificate?.authorityFile === undefined ? {} : { authorityFile: certificate.authorityFile }),
    config,
    key,
    pageUrl: await pageUrlOf(url, key, pageSessions),
    runtime: describe(chosen),
    stop: () => running.disposeAsync(),
  };
}

/** The first start has printed no key before, so its page link signs in by itself. */
async function pageUrlOf({ origin }: URL, { made }: FirstKey, sessions: PageSessions): Promise<string> {
  if (made === null) return `${origin}/`;
  const { code } = await sessions.makeLink({
    org: DEFAULT_ORG,
    keyId: keyIdOf(hashKey(made)),
    readOnly: false,
  });
  return pageLink(origin, code);
}

/** What could not be moved is tried again after this long. */
const DRAIN_AGAIN_MS = 500;

/** Browsers resolve names below `localhost` to this machine without DNS. */
const DEFAULT_DOMAIN = 'sbx.localhost';

type ServerCertificate = Omit<LocalCertificate, 'authorityFile'> & Partial<LocalCertificate>;

function certificateFor(config: ServerConfig): Promise<ServerCertificate> {
  const { dataDir, domain = DEFAULT_DOMAIN, host, certificateFiles } = config;
  if (certificateFiles !== undefined) return readCertificateFiles(certificateFiles, systemClock.now());
  const ctx = { directory: join(dataDir, 'tls'), clock: systemClock, randomBytes };
  return localCertificate(ctx, domain.replace(/:\d+$/, '').toLowerCase(), host);
}

function describe({ runtime, limits }: ChosenRuntime): RunningServer['runtime'] {
  return { name: runtime.name, capabilities: runtime.capabilities(), limits };
}

function openDatabase({ database, dataDir, node, configured }: ServerConfig, reserve: DiskReserve) {
  if (database === undefined) {
    return openSqlite({ path: join(dataDir, 'torpor.db'), makeRoom: () => reserve.releaseStep() });
  }
  if (node === undefined) return openPostgres({ url: database });
  // What a node that is cut off has locked, all others wait for.
  const idleTransactionTimeoutMs = Math.ceil(configured.settings.engine.nodeLeaseMs / 3);
  return openPostgres({ url: database, applicationName: connectionNameOf(node), idleTransactionTimeoutMs });
}

async function listen(app: App, { host, port, tls }: ServerConfig): Promise<URL> {
  try {
    await app.server.listen({ host, port });
  } catch (cause) {
    const code = errnoOf(cause);
    if (code === 'EADDRINUSE') {
      throw new TorporError('in_use', `Port ${port} of ${host} is taken.`, {
        hint: 'Torpor may already be running. Or choose another port; --port 0 finds a free one.',
        cause,
      });
    }
    throw new TorporError('invalid_request', `The server cannot listen on ${host}:${port} (${code}).`, {
      cause,
    });
  }
  const bound = app.server.server.address();
  const actual = typeof bound === 'object' && bound !== null ? bound.port : port;
  return new URL(`${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${actual}`);
}

/**
 * Tells the command line where the server of this data directory listens. Returns a function that removes the file. A
 * server that was killed leaves its file behind; the process id in the file shows that.
 */
async function writeAddressFile(
  dataDir: string,
  url: string,
  store: string | undefined,
): Promise<() => Promise<void>> {
  const file = join(dataDir, 'server.json');
  const unfinished = `${file}.${process.pid}`;
  await writeFile(unfinished, `${JSON.stringify({ url, pid: process.pid, store })}\n`, { mode: 0o600 });
  await rename(unfinished, file);
  return () => rm(file, { force: true });
}

/** The server still answers meanwhile. What has not moved in time runs on until the lease of the node ends. */
async function drainBeforeStop(engine: Engine, withinMs: number, log: Log): Promise<void> {
  const { self } = engine.directory;
  const until = systemClock.monotonic() + withinMs;
  try {
    await engine.beginDrain(self, { untilRestart: true });
    while (await engine.drainNode()) {
      if (systemClock.monotonic() >= until) {
        log.warn({ event: 'stop', drain: (await engine.node(self)).drain }, 'the drain did not end in time');
        return;
      }
      await systemClock.sleep(DRAIN_AGAIN_MS);
    }
    log.info({ event: 'stop' }, 'all sandboxes of this node have moved');
  } catch (error) {
    log.warn({ event: 'stop', error }, 'the drain failed');
  }
}

/** Operations that do not end in time stay open in the database. The next start continues them. */
async function stopEngine(engine: Engine, withinMs: number, log: Log): Promise<void> {
  const enough = new AbortController();
  const stopped = engine.stop().then(
    () => true,
    (thrown: unknown) => {
      log.warn({ event: 'stop', error: thrown }, 'the engine failed to stop');
      return false;
    },
  );
  const bound = systemClock.sleep(withinMs, enough.signal).then(
    () => false,
    () => false,
  );
  const inTime = await Promise.race([stopped, bound]);
  enough.abort();
  if (!inTime) log.warn({ event: 'stop' }, 'the next start continues the open operations');
}
