/** A proxy between an adapter and PostgreSQL's socket that simulates network failures. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createConnection, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface PostgresProxy {
  readonly url: string;
  /** Ends all connections; resolves when the adapter's side is closed. */
  cut(): Promise<void>;
  /** Refuses new connections until `accept`. */
  refuse(): void;
  accept(): void;
  /** Silently stops passing bytes on existing connections, and ignores new ones. */
  freeze(): void;
  thaw(): void;
  /** Passes the next such statement on, and ends the connection instead of passing on its answer. */
  cutAtAnswerTo(statement: string): void;
  close(): Promise<void>;
}

const SOCKET = '.s.PGSQL.5432';

export async function startPostgresProxy(url: string): Promise<PostgresProxy> {
  const target = new URL(url);
  const socket = join(target.searchParams.get('host') ?? '', SOCKET);
  const directory = await mkdtemp(join(tmpdir(), 'torpor-proxy-'));
  target.searchParams.set('host', directory);

  const sockets = new Set<Socket>();
  let refusing = false;
  let frozen = false;
  let trap: string | undefined;

  const server = createServer((client) => {
    sockets.add(client);
    client.on('error', () => undefined);
    client.on('close', () => sockets.delete(client));
    if (refusing) return client.destroy();
    if (frozen) return client.pause();
    const upstream = createConnection(socket);
    let trapped = false;
    client.on('data', (bytes) => {
      if (frozen) return;
      if (trap !== undefined && bytes.includes(`${trap}\0`)) {
        trapped = true;
        trap = undefined;
      }
      upstream.write(bytes);
    });
    upstream.on('data', (bytes) => {
      if (trapped) client.destroy();
      else if (!frozen) client.write(bytes);
    });
    client.on('close', () => upstream.destroy());
    upstream.on('error', () => undefined);
    upstream.on('close', () => client.destroy());
    return undefined;
  });
  server.listen(join(directory, SOCKET));
  await once(server, 'listening');

  const cut = async () => {
    const closed = [...sockets].map((one) => once(one, 'close'));
    for (const one of sockets) one.destroy();
    await Promise.all(closed);
  };
  return {
    url: target.href,
    cut,
    refuse: () => {
      refusing = true;
    },
    accept: () => {
      refusing = false;
    },
    freeze: () => {
      frozen = true;
    },
    thaw: () => {
      frozen = false;
    },
    cutAtAnswerTo: (statement) => {
      trap = statement;
    },
    close: async () => {
      server.close();
      await cut();
      await rm(directory, { recursive: true });
    },
  };
}
