/**
 * Sockets of this process that live in another network namespace.
 *
 * A socket belongs to the namespace of the process that made it, wherever it is used later. So a short-lived
 * child makes them inside and hands them over; there is no other way into a namespace without native code.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { Socket as DatagramSocket } from 'node:dgram';
import { once } from 'node:events';
import { type FileHandle, open } from 'node:fs/promises';
import { Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { namespacePath } from './system-program.ts';

/** Where to listen; port 0 picks a free one. */
export interface WantedSocket {
  readonly kind: 'tcp' | 'udp';
  readonly host: string;
  readonly port: number;
}

export interface NamespaceSockets {
  /** In the order in which they were wanted; TCP ones listen already. */
  readonly sockets: readonly (Server | DatagramSocket)[];
  /**
   * The namespace's connection tracking table, as far as the kernel shows it as a file. It stays readable, from
   * its start, however long it is kept open.
   */
  readonly conntrack: FileHandle | undefined;
}

const MAKER = fileURLToPath(new URL('./socket-maker.ts', import.meta.url));

export async function socketsInNamespace(
  netns: string,
  wanted: readonly WantedSocket[],
): Promise<NamespaceSockets> {
  const args = [`--net=${namespacePath(netns)}`, process.execPath, MAKER, JSON.stringify(wanted)];
  const child = spawn('nsenter', args, { stdio: ['ignore', 'ignore', 'pipe', 'ipc'], env: {} });
  const ended = once(child, 'exit');
  try {
    const sockets = await received(child, wanted.length);
    const conntrack = await openConntrack(child.pid as number);
    child.disconnect();
    await ended;
    return { sockets, conntrack };
  } finally {
    child.kill('SIGKILL');
  }
}

function received(child: ChildProcess, count: number): Promise<(Server | DatagramSocket)[]> {
  const sockets: (Server | DatagramSocket)[] = [];
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  return new Promise((resolve, reject) => {
    child.on('message', (_, handle) => {
      if (handle instanceof Server || handle instanceof DatagramSocket) sockets.push(handle);
      if (sockets.length === count) resolve(sockets);
    });
    child.once('error', reject);
    child.once('exit', (status) => {
      const why = said.trim().slice(-1_000);
      reject(new TorporError('internal', `No sockets could be made in the namespace (${status}): ${why}`));
    });
  });
}

async function openConntrack(pid: number): Promise<FileHandle | undefined> {
  return open(`/proc/${pid}/net/nf_conntrack`).catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
}
