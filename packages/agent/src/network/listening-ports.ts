/** The TCP ports that the sandbox listens on, with the listening processes. */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { basename } from 'node:path';
import { type ProcessScope, sandboxProcesses } from '../processes/sandbox-processes.ts';

export interface OpenPort {
  readonly port: number;
  readonly address: string;
  readonly pid: number;
  readonly processName: string;
}

export interface ListeningSocket {
  readonly port: number;
  readonly address: string;
  readonly inode: string;
}

/** Without the owning processes: finding those needs a look at every process. */
export async function listeningSockets(): Promise<ListeningSocket[]> {
  const tables = await Promise.all(
    ['/proc/net/tcp', '/proc/net/tcp6'].map((path) => readFile(path, 'utf8').catch(() => '')),
  );
  return tables.flatMap(parseListening);
}

/** Leaves out the agent's own sockets. */
export async function listeningPorts(
  scope: ProcessScope,
  isAgents: (socket: ListeningSocket) => boolean,
): Promise<OpenPort[]> {
  const sockets = (await listeningSockets()).filter((socket) => !isAgents(socket));
  const owners = await ownersOf(new Set(sockets.map(({ inode }) => inode)), scope);
  const ports = sockets.flatMap(({ port, address, inode }): OpenPort[] => {
    const owner = owners.get(inode);
    if (owner !== undefined) return [{ port, address, pid: owner.pid, processName: owner.name }];
    // Where the sandbox has a machine of its own, a listener without a visible owner still belongs to the sandbox.
    return scope.shared === undefined ? [{ port, address, pid: 0, processName: '' }] : [];
  });
  return ports.sort((a, b) => a.port - b.port || a.address.localeCompare(b.address));
}

const LISTEN = '0A';

export function parseListening(table: string): ListeningSocket[] {
  return table
    .split('\n')
    .slice(1)
    .flatMap((line) => {
      const [, local, , state, , , , , , inode] = line.trim().split(/\s+/);
      const [address, port] = local?.split(':') ?? [];
      if (state !== LISTEN || !address || !port || !inode) return [];
      return [{ address: parseAddress(address), port: Number.parseInt(port, 16), inode }];
    });
}

/** The kernel writes addresses as 32-bit words in the byte order of the machine. */
function parseAddress(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => [...Buffer.from(word, 'hex')].reverse());
  if (bytes.length === 4) return bytes.join('.');
  const isMapped = bytes.slice(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff && bytes[11] === 0xff;
  if (isMapped) return bytes.slice(12).join('.');
  const groups = Array.from({ length: 8 }, (_, index) =>
    (((bytes[2 * index] ?? 0) << 8) | (bytes[2 * index + 1] ?? 0)).toString(16),
  );
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}

interface SocketOwner {
  readonly pid: number;
  readonly name: string;
}

async function ownersOf(inodes: ReadonlySet<string>, scope: ProcessScope): Promise<Map<string, SocketOwner>> {
  const owners = new Map<string, SocketOwner>();
  for (const { pid, name } of await sandboxProcesses(scope)) {
    const directory = `/proc/${pid}/fd`;
    for (const fd of await readdir(directory).catch(() => [])) {
      const link = await readlink(`${directory}/${fd}`).catch(() => '');
      const [, inode] = /^socket:\[(\d+)\]$/.exec(link) ?? [];
      if (inode === undefined || !inodes.has(inode) || owners.has(inode)) continue;
      owners.set(inode, { pid, name: await programName(pid, name) });
    }
  }
  return owners;
}

/** The name in /proc/<pid>/stat is a thread's name, which some programs set to something useless. */
async function programName(pid: number, threadName: string): Promise<string> {
  const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  const [program] = line.split(/[\0 ]/, 1);
  return basename(program ?? '').replace(/:$/, '') || threadName;
}
