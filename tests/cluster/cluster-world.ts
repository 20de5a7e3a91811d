/** Several servers as nodes on this machine: one PostgreSQL, one store in a directory, a data directory and a port for each. */
import { execFile } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openPostgres } from '@torpor/database';
import { findPostgres } from '../../scripts/setup/postgresql.mjs';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const execute = promisify(execFile);
const CLUSTER_SECRET = 'c1a5'.repeat(16);

interface NodeOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly flags?: readonly string[];
}

export interface ClusterNode extends TorporProcess {
  readonly name: string;
  readonly port: number;
  readonly dataDir: string;
}

export interface ClusterWorld extends AsyncDisposable {
  readonly databaseUrl: string;
  /** Asks the database directly. */
  query<T extends object>(sql: string, params?: readonly unknown[]): Promise<T[]>;
  /** Starts the node, or starts it again on its data directory. */
  start(name: string, options?: NodeOptions): Promise<ClusterNode>;
}

export interface WorldOptions {
  readonly runtime?: 'process' | 'gvisor';
  /** Settings of all nodes, as `--set` takes them. */
  readonly settings?: readonly string[];
}

/** `postgres` is the address of a server in which a database is made. */
export async function makeClusterWorld(postgres: string, options: WorldOptions = {}): Promise<ClusterWorld> {
  const { runtime = 'process', settings = [] } = options;
  const database = await freshDatabase(postgres);
  const store = await mkdtemp(join(tmpdir(), 'torpor-store-'));
  const places = new Map<
    string,
    { readonly data: Awaited<ReturnType<typeof makeDataDir>>; readonly port: number }
  >();
  const running = new Set<ClusterNode>();
  return {
    databaseUrl: database.url,
    query: database.query,
    async start(name, { env = {}, flags = [] } = {}) {
      const place = places.get(name) ?? { data: await makeDataDir(), port: await freePort() };
      places.set(name, place);
      const process = await startTorpor(
        place.data.path,
        { TORPOR_CLUSTER_SECRET: CLUSTER_SECRET, ...env },
        runtime,
        [
          ...['--node', name, '--port', String(place.port), '--advertise', `http://127.0.0.1:${place.port}`],
          ...['--database', database.url, '--store', `file://${store}`],
          ...settings.flatMap((setting) => ['--set', setting]),
          ...flags,
        ],
      );
      const node = { ...process, name, port: place.port, dataDir: place.data.path };
      running.add(node);
      void node.ended.then(() => running.delete(node));
      return node;
    },
    async [Symbol.asyncDispose]() {
      const [first] = running;
      await first?.end().catch(() => {});
      await Promise.all([...running].map((node) => node.kill('SIGTERM')));
      // Guards of servers that were killed end what is left; the directories are still theirs until then.
      for (const { data } of places.values()) await untilGuardIsGone(data.path);
      for (const { data } of places.values()) await data.remove();
      await rm(store, { recursive: true, force: true });
      await database.drop();
    },
  };
}

async function untilGuardIsGone(dataDir: string): Promise<void> {
  const text = await readFile(join(dataDir, 'guard.json'), 'utf8').catch(() => undefined);
  if (text === undefined) return;
  const { pid } = JSON.parse(text) as { pid: number };
  for (let tries = 0; tries < 600; tries++) {
    const line = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
    if (!line.includes('guard-process')) return;
    await delay(50);
  }
  throw new Error(`The guard ${pid} of ${dataDir} does not end.`);
}

async function freshDatabase(server: string) {
  const name = `torpor_cluster_${randomBytes(6).toString('hex')}`;
  const program = join(findPostgres() ?? '', 'psql');
  const administer = (sql: string) => execute(program, ['--quiet', '--command', sql, server]);
  await administer(`CREATE DATABASE ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return {
    url: url.href,
    query: async <T extends object>(sql: string, params: readonly unknown[] = []) => {
      const db = await openPostgres({ url: url.href });
      try {
        return (await db.query(sql, params as never)) as unknown as T[];
      } finally {
        await db.close();
      }
    },
    drop: () => administer(`DROP DATABASE ${name} WITH (FORCE)`),
  };
}

/** Below the ephemeral ports of Linux: an outgoing connection could take one of those while the node is down. */
async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + randomInt(12_000);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}
