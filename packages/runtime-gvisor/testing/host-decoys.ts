/**
 * Decoys on the host that no sandbox may reach: HTTP servers, a database, sockets, files with a secret in them.
 * They record every access.
 */
import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface HostDecoys {
  /** Part of every file and every answer. */
  readonly secret: string;
  /** A directory of the host, with a file `victim` in it. */
  readonly directory: string;
  /** Files of the host, in directories that sandboxes have too. */
  readonly files: readonly string[];
  readonly ports: { readonly everywhere: number; readonly loopback: number; readonly database: number };
  readonly udpPort: number;
  readonly socketPath: string;
  readonly abstractSocket: string;
  /** Adds a socket of the host at a path that a sandbox can see. */
  plant(path: string): Promise<void>;
  /** The recorded accesses. */
  reached(): readonly string[];
  /** Throws when the directory has changed. */
  expectUntouched(): Promise<void>;
  remove(): Promise<void>;
}

const PLACES = ['/root', '/home', '/etc', '/opt', '/srv', '/var/lib', '/var/tmp', '/run'];

export async function placeDecoys(dataDir: string): Promise<HostDecoys> {
  const secret = randomBytes(16).toString('hex');
  const directory = await mkdtemp(join(tmpdir(), 'torpor-decoy-'));
  const victim = join(directory, 'victim');
  await writeFile(victim, secret);
  const files = [...PLACES, dataDir].map((place) => join(place, `torpor-decoy-${secret.slice(0, 8)}`));
  for (const file of files) await writeFile(file, secret, { mode: 0o644 });

  const reached: string[] = [];
  const servers: Server[] = [];
  const listen = async (server: Server, ...where: [number, string] | [string]) => {
    servers.push(server);
    server.listen(...(where as [string]));
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  const http = (name: string) =>
    createHttpServer((request, response) => {
      reached.push(`${name} from ${request.socket.remoteAddress}: ${request.method} ${request.url}`);
      response.end(secret);
    }).on('connection', (socket) => reached.push(`${name} from ${socket.remoteAddress}`));
  const plain = (name: string) =>
    createServer((socket) => {
      reached.push(`${name} from ${socket.remoteAddress}`);
      socket.on('error', () => {}).end(secret);
    });
  const ports = {
    everywhere: await listen(http('the API'), 0, '::'),
    loopback: await listen(http('the API on the loopback'), 0, '127.0.0.1'),
    database: await listen(plain('the database'), 0, '0.0.0.0'),
  };
  const socketPath = join(directory, 'torpor.sock');
  await listen(plain('a unix socket'), socketPath);
  const abstractSocket = `torpor-${secret.slice(0, 8)}`;
  await listen(plain('an abstract socket'), `\0${abstractSocket}`);
  const udp = createSocket('udp4', (_, from) => reached.push(`udp from ${from.address}`));
  udp.bind(0, '0.0.0.0');
  await once(udp, 'listening');

  return {
    secret,
    directory,
    files,
    ports,
    udpPort: udp.address().port,
    socketPath,
    abstractSocket,
    plant: async (path) => void (await listen(plain('a planted socket'), path)),
    reached: () => reached,
    expectUntouched: async () => {
      const found = (await readdir(directory)).sort().join(' ');
      const isWhole = (await readFile(victim, 'utf8')) === secret;
      const mounts = await readFile('/proc/self/mountinfo', 'utf8');
      if (found === 'torpor.sock victim' && isWhole && !mounts.includes(directory)) return;
      throw new Error(
        `The decoys were touched: ${found}, the victim ${isWhole ? 'is unchanged' : 'has changed'}.`,
      );
    },
    remove: async () => {
      udp.close();
      for (const server of servers) server.close();
      for (const file of files) await rm(file, { force: true });
      await mkdir(directory, { recursive: true });
      await rm(directory, { recursive: true });
    },
  };
}
