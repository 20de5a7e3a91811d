/** Several servers as nodes on this machine: one PostgreSQL, one store in a directory, a data directory and a port for each. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

export const CLUSTER_SECRET = 'c1a5'.repeat(16);

export interface NodeOptions {
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
  const run = async (url: string, sql: string, params: readonly unknown[] = []) => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    try {
      return await client.query(sql, [...params]);
    } finally {
      await client.end();
    }
  };
  await run(server, `CREATE DATABASE ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return {
    url: url.href,
    query: async <T extends object>(sql: string, params: readonly unknown[] = []) =>
      (await run(url.href, sql, params)).rows as T[],
    drop: async () => void (await run(server, `DROP DATABASE ${name} WITH (FORCE)`)),
  };
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
