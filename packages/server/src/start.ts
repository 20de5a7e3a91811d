/** Puts a server together and opens its door. What was begun is undone when a later step fails. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { BuildContext } from '@torpor/builds';
import { openDirectoryStore } from '@torpor/checkpoint-store';
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
import { leaveAddress } from './address-file.ts';
import { type App, buildApp } from './app.ts';
import { EngineSandboxes } from './builds/engine-sandboxes.ts';
import { openBuilds } from './builds/open-builds.ts';
import { OwnDoor } from './builds/own-door.ts';
import type { ServerConfig } from './config.ts';
import { HostNames } from './http/host-names.ts';
import { ensureFirstKey, type FirstKey } from './keys/first-key.ts';
import { ensureSecret } from './keys/server-secret.ts';
import { watchLedger } from './observe/ledger-watch.ts';
import type { Log } from './observe/log.ts';
import { Metrics } from './observe/metrics.ts';
import { reportTo } from './observe/report.ts';
import { openGateway } from './preview/open-gateway.ts';
import { type ChosenRuntime, chooseRuntime } from './runtime-choice.ts';
import { agentProcesses } from './sandbox/agent-processes.ts';
import { agentInside } from './sessions/agent-inside.ts';
import { openUploads } from './uploads.ts';

export interface RunningServer {
  readonly url: string;
  /** Under which previews are found; with its port. */
  readonly domain: string;
  /** What has to be trusted for TLS; absent without it. */
  readonly authorityFile?: string;
  readonly config: ServerConfig;
  readonly key: FirstKey;
  readonly runtime: {
    readonly name: string;
    readonly capabilities: Capabilities;
    readonly limits: readonly string[];
  };
  /** Finishes what is under way within its bounds, and leaves running sandboxes running. */
  stop(): Promise<void>;
}

export interface StartOptions {
  readonly log: Log;
  readonly faults: FaultPoints;
  /** What runs the sandboxes; a test brings its own. */
  readonly choose?: typeof chooseRuntime;
}

export async function startServer(config: ServerConfig, options: StartOptions): Promise<RunningServer> {
  await using begun = new AsyncDisposableStack();
  const { dataDir } = config;
  const { settings, list: settingsList } = config.configured;
  const reserve = await DiskReserve.open(join(dataDir, 'reserve'), settings.engine.diskReserveBytes);
  const directory = await claimDataDirectory(dataDir, systemClock, () => reserve.makeRoomToStart());
  begun.defer(() => directory.release());
  const db = await openDatabase(config, reserve);
  begun.defer(() => db.close());
  await migrate(db);
  const store = await openDirectoryStore({ root: join(dataDir, 'checkpoints') });
  const metrics = new Metrics();
  const report = reportTo(options.log, metrics);
  const chosen = await (options.choose ?? chooseRuntime)(config, store, systemClock, report);
  begun.defer(() => chosen.close?.());
  const serverId = `${hostname()}-${process.pid}-${randomBytes(4).toString('hex')}`;
  const secret = await ensureSecret(dataDir, randomBytes);
  const shared = { db, clock: systemClock, randomBytes, log: options.log, metrics };
  // The gateway holds the door that the engine closes, and asks the engine to wake whoever is behind it.
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
    gate: gateway.gate,
    clock: systemClock,
    processes: agentProcesses,
    ids: randomIds,
    settings: settings.engine,
    faults: options.faults,
    report,
    serverId,
    alone: config.database === undefined,
    home: directory.id,
    reserve,
  });
  begun.defer(await watchLedger({ db, serverId, log: options.log, metrics }));
  begun.defer(() => stopEngine(engine, settings.server.stopMs, options.log));
  await engine.start();
  const upgrade = chosen.beginUpgrade?.(() => engine.renewTemplates());
  begun.defer(() => upgrade?.stop());
  const sessions = new Sessions({
    engine,
    db,
    clock: systemClock,
    ids: randomIds,
    inside: agentInside(engine),
    settings: settings.sessions,
    report,
    pass: (point) => options.faults.pass(point),
  });
  begun.defer(() => sessions.stop());
  await sessions.start();
  const key = await ensureFirstKey({ db, clock: systemClock, randomBytes }, dataDir, config.apiKey);
  const certificate = config.tls ? await certificateFor(config) : undefined;
  const door = new OwnDoor();
  const sandboxes = new EngineSandboxes({
    engine,
    gateway,
    door,
    clock: systemClock,
    ids: randomIds,
    settings: settings.runtimes,
  });
  const alone = config.database === undefined;
  const pass: BuildContext['pass'] = (point) => options.faults.pass(point);
  const builds = openBuilds({ ...shared, ids: randomIds, sandboxes, report, pass, serverId, alone }, config);
  begun.defer(() => builds.stop());
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
  begun.defer(() => app.stop());
  const url = await listen(app, config);
  const domain = config.domain ?? (url.port === '' ? DEFAULT_DOMAIN : `${DEFAULT_DOMAIN}:${url.port}`);
  gateway.settle({ domain, scheme: config.tls ? 'https' : 'http' });
  door.settle(url);
  await builds.start();
  begun.defer(await leaveAddress(dataDir, url.origin));
  const running = begun.move();
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

/** Browsers know without asking that names below this one are this machine. */
const DEFAULT_DOMAIN = 'sbx.localhost';

function certificateFor({ dataDir, domain = DEFAULT_DOMAIN, host }: ServerConfig): Promise<LocalCertificate> {
  const parts = { directory: join(dataDir, 'tls'), clock: systemClock, randomBytes };
  return localCertificate(parts, domain.replace(/:\d+$/, '').toLowerCase(), host);
}

function describe({ runtime, limits }: ChosenRuntime): RunningServer['runtime'] {
  return { name: runtime.name, capabilities: runtime.capabilities(), limits };
}

function openDatabase({ database, dataDir }: ServerConfig, reserve: DiskReserve) {
  return database === undefined
    ? openSqlite({ path: join(dataDir, 'torpor.db'), makeRoom: () => reserve.giveUp() })
    : openPostgres({ url: database });
}

async function listen(app: App, { host, port, tls }: ServerConfig): Promise<URL> {
  try {
    await app.server.listen({ host, port });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') {
      throw new TorporError('in_use', `Port ${port} of ${host} is taken.`, {
        hint: 'Is Torpor running already? Else choose another port: --port 0 finds a free one.',
        cause,
      });
    }
    throw new TorporError('invalid_request', `It cannot listen on ${host}:${port} (${code}).`, { cause });
  }
  const bound = app.server.server.address();
  const actual = typeof bound === 'object' && bound !== null ? bound.port : port;
  return new URL(`${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${actual}`);
}

/** What does not end in time stays open in the database, and the next start takes it up. */
async function stopEngine(engine: Engine, withinMs: number, log: Log): Promise<void> {
  const enough = new AbortController();
  const stopped = engine.stop().then(
    () => true,
    (thrown: unknown) => {
      log.warn({ event: 'stop', error: thrown }, 'the engine did not stop well');
      return false;
    },
  );
  const bound = systemClock.sleep(withinMs, enough.signal).then(
    () => false,
    () => false,
  );
  const inTime = await Promise.race([stopped, bound]);
  enough.abort();
  if (!inTime) log.warn({ event: 'stop' }, 'what is left open is taken up at the next start');
}
