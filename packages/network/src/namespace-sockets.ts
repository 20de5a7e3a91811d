/**
 * Opens sockets in another network namespace for this process.
 *
 * A socket belongs to the namespace of the process that created it, also after it was passed to another process. So a
 * short-lived child process creates the sockets inside and passes them on. Without native code Node cannot enter a
 * namespace itself.
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

/** Port 0 picks a free port. */
export interface WantedSocket {
  readonly kind: 'tcp' | 'udp';
  readonly host: string;
  readonly port: number;
}

export interface NamespaceSockets {
  /** In the order of the request. TCP sockets listen already. */
  readonly sockets: readonly (Server | DatagramSocket)[];
  /**
   * The connection tracking table of the namespace, if the kernel offers it as a file. The open file can be read from its
   * start again and again.
   */
  readonly conntrack: FileHandle | undefined;
}

const SOCKET_MAKER = fileURLToPath(new URL('./socket-maker.ts', import.meta.url));

export async function socketsInNamespace(
  netns: string,
  wanted: readonly WantedSocket[],
): Promise<NamespaceSockets> {
  const args = [`--net=${namespacePath(netns)}`, process.execPath, SOCKET_MAKER, JSON.stringify(wanted)];
  const child = spawn('nsenter', args, { stdio: ['ignore', 'ignore', 'pipe', 'ipc'], env: {} });
  const ended = once(child, 'exit');
  try {
    const sockets = await receiveSockets(child, wanted.length);
    const conntrack = await openConntrack(child.pid as number);
    child.disconnect();
    await ended;
    return { sockets, conntrack };
  } finally {
    child.kill('SIGKILL');
  }
}

function receiveSockets(child: ChildProcess, count: number): Promise<(Server | DatagramSocket)[]> {
  const sockets: (Server | DatagramSocket)[] = [];
  let stderr = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  return new Promise((resolve, reject) => {
    child.on('message', (_, handle) => {
      if (handle instanceof Server || handle instanceof DatagramSocket) sockets.push(handle);
      if (sockets.length === count) resolve(sockets);
    });
    child.once('error', reject);
    child.once('exit', (status) => {
      const why = stderr.trim().slice(-1_000);
      reject(
        new TorporError('internal', `The sockets could not be opened in the namespace (${status}): ${why}`),
      );
    });
  });
}

async function openConntrack(pid: number): Promise<FileHandle | undefined> {
  return open(`/proc/${pid}/net/nf_conntrack`).catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
}
