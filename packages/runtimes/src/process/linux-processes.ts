/** Processes and sockets as /proc shows them. What vanishes while it is read is not there. */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { forEachBounded } from './bounded.ts';
import type { HostProcesses, Listener, ProcessFacts, ProcessState } from './host-processes.ts';

/** More reads at once only queue for Node's few file system threads. */
const READS_AT_ONCE = 32;

export const linuxProcesses: HostProcesses = {
  bootId: async () => (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim(),

  async read(pid) {
    const stat = parseStat(await text(`/proc/${pid}/stat`));
    if (stat === undefined) return undefined;
    const { threads, ...facts } = stat;
    if (threads <= 1) return facts;
    return { ...facts, state: await stateOfThreads(pid, facts.state) };
  },

  async all() {
    const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
    const found: ProcessFacts[] = [];
    await forEachBounded(pids, READS_AT_ONCE, async (pid) => {
      const facts = await linuxProcesses.read(Number(pid));
      if (facts !== undefined) found.push(facts);
    });
    return found;
  },

  environment: async (pid) => (await text(`/proc/${pid}/environ`)).split('\0'),

  async users(pid) {
    const [, line] = /^Uid:\s*(.*)$/m.exec(await text(`/proc/${pid}/status`)) ?? [];
    return line === undefined ? [] : line.split(/\s+/).map(Number);
  },

  async listeners(port) {
    const tables = await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map(text));
    return tables.flatMap(parseListeners).filter((listener) => listener.port === port);
  },

  async holds(pid, sockets) {
    const held: string[] = [];
    for (const fd of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      const link = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '');
      if (sockets.has(link)) held.push(link);
    }
    return held;
  },
};

async function text(path: string): Promise<string> {
  return readFile(path, 'latin1').catch(() => '');
}

/** The name stands in parentheses and may itself contain them, so the last one counts. */
export function parseStat(line: string): (ProcessFacts & { readonly threads: number }) | undefined {
  const close = line.lastIndexOf(')');
  if (close === -1) return undefined;
  const fields = line.slice(close + 2).split(' ');
  return {
    pid: Number.parseInt(line, 10),
    state: parseState(fields[0] ?? ''),
    parent: Number(fields[1]),
    session: Number(fields[3]),
    threads: Number(fields[17]),
    startedAt: fields[19] ?? '',
  };
}

function parseState(letter: string): ProcessState {
  if (letter === 'T' || letter === 't') return 'stopped';
  return letter === 'Z' || letter === 'X' ? 'dead' : 'moving';
}

/** The first thread may be stopped or gone while others still run. */
async function stateOfThreads(pid: number, ofFirst: ProcessState): Promise<ProcessState> {
  if (ofFirst === 'moving') return 'moving';
  const states = new Set<ProcessState>();
  for (const thread of await readdir(`/proc/${pid}/task`).catch(() => [])) {
    const stat = parseStat(await text(`/proc/${pid}/task/${thread}/stat`));
    if (stat !== undefined) states.add(stat.state);
  }
  if (states.has('moving')) return 'moving';
  return states.has('stopped') ? 'stopped' : ofFirst;
}

const LISTENING = '0A';

export function parseListeners(table: string): Listener[] {
  return table.split('\n').flatMap((line) => {
    const [, local, , state, , , , , , inode] = line.trim().split(/\s+/);
    const [address, port] = local?.split(':') ?? [];
    if (state !== LISTENING || !address || !port || !inode) return [];
    return [{ address: parseAddress(address), port: Number.parseInt(port, 16), socket: `socket:[${inode}]` }];
  });
}

/** The kernel writes addresses as 32-bit words, each in the byte order of the machine. */
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
