/**
 * Several servers as nodes on this machine: one PostgreSQL, one store, a data directory and a port for each. The store is the S3
 * server of the lab when it is there, else a directory.
 */
import { execFile } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openPostgres } from '@torpor/database';
import { environmentFor, type LabS3, labMissing, startLabS3 } from '@torpor/object-store/testing';
import { findPostgres } from '../../scripts/setup/postgresql.mjs';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { Link, type LinkTarget } from './link.ts';

const execute = promisify(execFile);
const CLUSTER_SECRET = 'c1a5'.repeat(16);

/** All nodes share one machine, and the sandboxes of a test use little of what they are allowed. */
const NODE_MEMORY_MB = '131072';

/** Where the store of these tests is, for their titles. */
export const STORE = labMissing === undefined ? 'S3' : `a directory (${labMissing})`;

interface NodeOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly flags?: readonly string[];
  /** Where another version of Torpor is checked out, which runs this node. */
  readonly version?: string | undefined;
}

export interface ClusterNode extends TorporProcess {
  readonly name: string;
  readonly port: number;
  readonly dataDir: string;
}

/** What is between a node and the rest of the world, each of which can be cut. */
export interface NodeLinks {
  readonly database: Link;
  /** Undefined when the store is a directory. */
  readonly store: Link | undefined;
  /** From the other nodes to this one. */
  readonly peers: Link;
}

export interface ClusterWorld extends AsyncDisposable {
  readonly databaseUrl: string;
  /** The store of all nodes, and the variables with which they find it. */
  readonly store: { readonly address: string; readonly env: Readonly<Record<string, string>> };
  /** Asks the database directly. */
  query<T extends object>(sql: string, params?: readonly unknown[]): Promise<T[]>;
  /** Starts the node, or starts it again on its data directory. */
  start(name: string, options?: NodeOptions): Promise<ClusterNode>;
  /** Only in a world with links. */
  links(name: string): Promise<NodeLinks>;
}

export interface WorldOptions {
  readonly runtime?: 'process' | 'gvisor';
  /** Settings of all nodes, as `--set` takes them. */
  readonly settings?: readonly string[];
  /** Each node has links of its own to everything else. Else it has direct connections. */
  readonly linked?: boolean;
  /** What the nodes print goes into files here. */
  readonly logs?: string;
}

interface Place {
  readonly data: Awaited<ReturnType<typeof makeDataDir>>;
  readonly port: number;
  readonly links: NodeLinks | undefined;
}

/** `postgres` is the address of a server in which a database is made. */
export async function makeClusterWorld(postgres: string, options: WorldOptions = {}): Promise<ClusterWorld> {
  const { runtime = 'process', settings = [], linked = false, logs } = options;
  const database = await freshDatabase(postgres);
  const store = await openStore();
  const places = new Map<string, Place>();
  const running = new Set<ClusterNode>();
  const placeOf = async (name: string): Promise<Place> => {
    const known = places.get(name);
    if (known !== undefined) return known;
    const port = await freePort();
    const links = linked
      ? {
          database: await Link.open(database.target),
          store: store.port === undefined ? undefined : await Link.open(onThisMachine(store.port)),
          peers: await Link.open(onThisMachine(port)),
        }
      : undefined;
    const place = { data: await makeDataDir(), port, links };
    places.set(name, place);
    return place;
  };
  return {
    databaseUrl: database.url,
    store: { address: store.address, env: store.env(undefined) },
    query: database.query,
    async links(name) {
      const { links } = await placeOf(name);
      if (links === undefined) throw new Error('This world has no links.');
      return links;
    },
    async start(name, { env = {}, flags = [], version } = {}) {
      const { data, port, links } = await placeOf(name);
      const process = await startTorpor(
        data.path,
        { TORPOR_CLUSTER_SECRET: CLUSTER_SECRET, ...store.env(links?.store), ...env },
        runtime,
        [
          ...['--node', name, '--port', String(port), '--node-memory-mb', NODE_MEMORY_MB],
          ...['--advertise', `http://127.0.0.1:${links?.peers.port ?? port}`],
          ...['--database', database.urlThrough(links?.database), '--store', store.address],
          ...settings.flatMap((setting) => ['--set', setting]),
          ...flags,
        ],
        version === undefined ? programFor(logs, name) : programOf(version),
      );
      const node = { ...process, name, port, dataDir: data.path };
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
      for (const { data, links } of places.values()) {
        await data.remove();
        for (const link of Object.values(links ?? {})) await link?.close();
      }
      await store.close();
      await database.drop();
    },
  };
}

function onThisMachine(port: number): LinkTarget {
  return { host: '127.0.0.1', port };
}

function programFor(logs: string | undefined, name: string): [string, ...string[]] | undefined {
  return logs === undefined ? undefined : withErrorsIn(join(logs, `${name}.log`));
}

/** Leaves out the program of this version, which comes first. */
function programOf(version: string): [string, ...string[]] {
  const old = join(version, 'packages/cli/bin/torpor.mjs');
  return ['sh', '-c', `shift; exec '${process.execPath}' '${old}' "$@"`, 'sh'];
}

/** The process id stays that of the server. */
function withErrorsIn(file: string): [string, ...string[]] {
  return ['sh', '-c', `exec "$0" "$@" 2>>'${file}'`, process.execPath];
}

interface Store {
  readonly address: string;
  readonly port: number | undefined;
  env(through: Link | undefined): Readonly<Record<string, string>>;
  close(): Promise<void>;
}

async function openStore(): Promise<Store> {
  if (labMissing !== undefined) {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-store-'));
    return {
      address: `file://${directory}`,
      port: undefined,
      env: () => ({}),
      close: () => rm(directory, { recursive: true, force: true }),
    };
  }
  const s3: LabS3 = await startLabS3();
  return {
    address: `s3://${s3.bucket}/cluster`,
    port: s3.port,
    env: (through) =>
      environmentFor(through === undefined ? s3.endpoint : `http://127.0.0.1:${through.port}`),
    close: () => s3.stop(),
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
  const socket = url.searchParams.get('host');
  return {
    url: url.href,
    /** Where PostgreSQL listens. */
    target:
      socket === null
        ? { host: url.hostname, port: Number(url.port || 5432) }
        : { path: `${socket}/.s.PGSQL.5432` },
    urlThrough: (link: Link | undefined) =>
      link === undefined ? url.href : `postgresql://${url.username}@127.0.0.1:${link.port}/${name}`,
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
