/** Assembles a server and lets it listen. When a step fails, the earlier steps are undone. */
import { randomBytes } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { BuildContext } from '@torpor/builds';
import { adoptGvisorLayers, openDirectoryStore } from '@torpor/checkpoint-store';
import { claimDataDirectory, migrate, openPostgres, openSqlite } from '@torpor/database';
import {
  createEngine,
  DiskReserve,
  type Engine,
  type FaultPoints,
  randomIds,
  systemClock,
} from '@torpor/engine';
import { type LocalCertificate, localCertificate } from '@torpor/gateway';
import { type Capabilities, TorporError } from '@torpor/protocol';
import { Sessions } from '@torpor/sessions';
import manifest from '../package.json' with { type: 'json' };
import { type App, buildApp } from './app.ts';
import { refuseUnfinishedRestore } from './backup/restore.ts';
import { EngineSandboxes } from './builds/engine-sandboxes.ts';
import { openBuilds } from './builds/open-builds.ts';
import { PreviewClient } from './builds/preview-client.ts';
import type { ServerConfig } from './config.ts';
import { HostNames } from './http/host-names.ts';
import { ensureFirstKey, type FirstKey } from './keys/first-key.ts';
import { ensureSecret } from './keys/server-secret.ts';
import { ALL_MIGRATIONS } from './migrations.ts';
import { watchLedger } from './observe/ledger-watch.ts';
import type { Log } from './observe/log.ts';
import { Metrics } from './observe/metrics.ts';
import { reportTo } from './observe/report.ts';
import { openGateway } from './preview/open-gateway.ts';
import { type ChosenRuntime, chooseRuntime } from './runtime-choice.ts';
import { agentProcesses } from './sandbox/agent-processes.ts';
import { agentTurnPort } from './sessions/agent-turn-port.ts';
import { openUploads } from './uploads.ts';

export interface RunningServer {
  readonly url: string;
  /** The domain of previews, with its port. */
  readonly domain: string;
  /** The certificate authority that clients must trust. Absent without TLS. */
  readonly authorityFile?: string;
  readonly config: ServerConfig;
  readonly key: FirstKey;
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
  await adoptGvisorLayers(dataDir);
  const store = await openDirectoryStore({ root: join(dataDir, 'checkpoints') });
  const metrics = new Metrics();
  const report = reportTo(options.log, metrics);
  const chosen = await (options.choose ?? chooseRuntime)(config, store, systemClock, report);
  cleanup.defer(() => chosen.close?.());
  const serverId = `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`;
  const secret = await ensureSecret(dataDir, randomBytes);
  const shared = { db, clock: systemClock, randomBytes, log: options.log, metrics };
  // Engine and gateway need each other: the engine closes the gateway's gates, the gateway wakes sandboxes.
  const gateway = openGateway({
    ...shared,
    engine: () => engine,
    ids: randomIds,
    secret,
    settings: settings.gateway,
  });
  const engine: Engine = createEngine({
    db,
    store,
    runtimes: new Map([chosen.runtime, ...(chosen.others ?? [])].map((one) => [one.name, one])),
    defaultRuntime: chosen.runtime.name,
    gate: gateway.gates,
    clock: systemClock,
    processes: agentProcesses,
    ids: randomIds,
    settings: settings.engine,
    faults: options.faults,
    report,
    serverId,
    ownsDataDirectory: config.database === undefined,
    dataDirectoryId: directory.id,
    reserve,
  });
  cleanup.defer(await watchLedger({ db, serverId, log: options.log, metrics }));
  cleanup.defer(() => stopEngine(engine, settings.server.stopMs, options.log));
  await engine.start();
  const upgrade = chosen.beginUpgrade?.(() => engine.renewTemplates());
  cleanup.defer(() => upgrade?.stop());
  const sessions = new Sessions({
    engine,
    db,
    clock: systemClock,
    ids: randomIds,
    turnPort: agentTurnPort(engine),
    settings: settings.sessions,
    report,
    atFaultPoint: (point) => options.faults.pass(point),
  });
  cleanup.defer(() => sessions.stop());
  await sessions.start();
  const key = await ensureFirstKey({ db, clock: systemClock, randomBytes }, dataDir, config.apiKey);
  const certificate = config.tls ? await certificateFor(config) : undefined;
  const previews = new PreviewClient();
  const sandboxes = new EngineSandboxes({
    engine,
    gateway,
    previews,
    clock: systemClock,
    ids: randomIds,
    settings: settings.runtimes,
  });
  const alone = config.database === undefined;
  const pass: BuildContext['pass'] = (point) => options.faults.pass(point);
  const builds = openBuilds({ ...shared, ids: randomIds, sandboxes, report, pass, serverId, alone }, config);
  cleanup.defer(() => builds.stop());
  const app = await buildApp({
    ...shared,
    engine,
    sessions,
    ids: randomIds,
    uploads: await openUploads(join(dataDir, 'uploads')),
    settings: settings.server,
    settingsList,
    version: manifest.version,
    hostNames: new HostNames({
      host: config.host,
      domain: config.domain ?? DEFAULT_DOMAIN,
      machine: hostname(),
      allowed: config.allowedHosts ?? [],
    }),
    gateway,
    builds,
    ...(certificate === undefined ? {} : { tls: certificate }),
  });
  cleanup.defer(() => app.stop());
  const url = await listen(app, config);
  const domain = config.domain ?? (url.port === '' ? DEFAULT_DOMAIN : `${DEFAULT_DOMAIN}:${url.port}`);
  gateway.setPublicAddress({ domain, scheme: config.tls ? 'https' : 'http' });
  previews.setAddress(url);
  await builds.start();
  cleanup.defer(await writeAddressFile(dataDir, url.origin));
  const running = cleanup.move();
  return {
    url: url.origin,
    domain,
    ...(certificate === undefined ? {} : { authorityFile: certificate.authorityFile }),
    config,
    key,
    runtime: describe(chosen),
    stop: () => running.disposeAsync(),
  };
}

/** Browsers resolve names below `localhost` to this machine without DNS. */
const DEFAULT_DOMAIN = 'sbx.localhost';

function certificateFor({ dataDir, domain = DEFAULT_DOMAIN, host }: ServerConfig): Promise<LocalCertificate> {
  const ctx = { directory: join(dataDir, 'tls'), clock: systemClock, randomBytes };
  return localCertificate(ctx, domain.replace(/:\d+$/, '').toLowerCase(), host);
}

function describe({ runtime, limits }: ChosenRuntime): RunningServer['runtime'] {
  return { name: runtime.name, capabilities: runtime.capabilities(), limits };
}

function openDatabase({ database, dataDir }: ServerConfig, reserve: DiskReserve) {
  return database === undefined
    ? openSqlite({ path: join(dataDir, 'torpor.db'), makeRoom: () => reserve.releaseStep() })
    : openPostgres({ url: database });
}

async function listen(app: App, { host, port, tls }: ServerConfig): Promise<URL> {
  try {
    await app.server.listen({ host, port });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
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
async function writeAddressFile(dataDir: string, url: string): Promise<() => Promise<void>> {
  const file = join(dataDir, 'server.json');
  const unfinished = `${file}.${process.pid}`;
  await writeFile(unfinished, `${JSON.stringify({ url, pid: process.pid })}\n`, { mode: 0o600 });
  await rename(unfinished, file);
  return () => rm(file, { force: true });
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
