/**
 * Reads processes and sockets from /proc. A process that vanishes while it is read counts as gone.
 *
 * Files that the kernel answers from memory are read synchronously, in slices: handing each of these thousands of short
 * reads to Node's thread pool takes ten times as long.
 */
import { closeSync, openSync, readdirSync, readSync } from 'node:fs';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import type { HostProcesses, Listener, ProcessFacts, ProcessState } from './host-processes.ts';

/** Number of synchronous reads before the event loop continues. */
const SLICE = 200;

const PREFIX = 'TORPOR_';

/** The unit of `startedAt`, which Linux fixes for programs on all its common architectures. */
const TICKS_PER_SECOND = 100;
/** A process of this age is not worth a call through the thread pool: its memory is small, and it may be gone by then. */
const YOUNG_TICKS = TICKS_PER_SECOND;

interface KnownVariables {
  readonly startedAt: string;
  readonly lines: readonly string[];
}

class LinuxProcesses implements HostProcesses {
  #bootId: Promise<string> | undefined;
  /**
   * By pid. The first variables that were read are kept: a process that overwrites its environment later was still
   * started by the same instance.
   */
  readonly #variables = new Map<number, KnownVariables>();

  bootId(): Promise<string> {
    this.#bootId ??= readFile('/proc/sys/kernel/random/boot_id', 'utf8').then((line) => line.trim());
    return this.#bootId;
  }

  async read(pid: number): Promise<ProcessFacts | undefined> {
    return readFacts(pid);
  }

  /**
   * Newest first, and the variables of a new process at once: a process that starts its successor and exits is gone within a
   * millisecond, and its environment with it.
   */
  async all(): Promise<ProcessFacts[]> {
    const pids = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .toSorted((a, b) => b - a);
    const youngSince = Number.parseFloat(text('/proc/uptime')) * TICKS_PER_SECOND - YOUNG_TICKS;
    const found: ProcessFacts[] = [];
    for (const [index, pid] of pids.entries()) {
      if (index % SLICE === SLICE - 1) await setImmediate();
      const facts = readFacts(pid);
      if (facts === undefined) continue;
      found.push(facts);
      if (Number(facts.startedAt) >= youngSince) this.#readVariables(facts, text(`/proc/${pid}/environ`));
    }
    const present = new Set(pids);
    for (const pid of this.#variables.keys()) if (!present.has(pid)) this.#variables.delete(pid);
    return found;
  }

  async torporVariables({ pid, startedAt }: ProcessFacts): Promise<readonly string[]> {
    const known = this.#variables.get(pid);
    if (known?.startedAt === startedAt) return known.lines;
    // Asynchronous, because this read waits for the lock of the process's memory.
    const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
    return this.#readVariables({ pid, startedAt }, environment);
  }

  #readVariables(
    { pid, startedAt }: Pick<ProcessFacts, 'pid' | 'startedAt'>,
    environment: string,
  ): readonly string[] {
    const lines = environment.split('\0').filter((line) => line.startsWith(PREFIX));
    // The environment is empty for a moment while a process executes another program.
    if (environment !== '') this.#variables.set(pid, { startedAt, lines });
    return lines;
  }

  async userIds({ pid }: ProcessFacts): Promise<readonly number[]> {
    const [, line] = /^Uid:\s*(.*)$/m.exec(text(`/proc/${pid}/status`)) ?? [];
    return line === undefined ? [] : line.split(/\s+/).map(Number);
  }

  async listeners(port: number): Promise<Listener[]> {
    const tables = ['/proc/net/tcp', '/proc/net/tcp6'].map((path) =>
      readFile(path, 'latin1').catch(() => ''),
    );
    return (await Promise.all(tables)).flatMap(parseListeners).filter((listener) => listener.port === port);
  }

  async heldSockets({ pid }: ProcessFacts, sockets: ReadonlySet<string>): Promise<readonly string[]> {
    const held: string[] = [];
    for (const fd of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      const link = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '');
      if (sockets.has(link)) held.push(link);
    }
    return held;
  }
}

export const linuxProcesses: HostProcesses = new LinuxProcesses();

/**
 * The buffer of all synchronous reads, which end before the next one begins. `readFileSync` allocates a new buffer for each
 * file: with thousands of reads, the collection of these buffers would take most of the time.
 */
let shared = Buffer.allocUnsafeSlow(4096);

function text(path: string): string {
  let file: number | undefined;
  try {
    file = openSync(path, 'r');
    let length = 0;
    for (;;) {
      const read = readSync(file, shared, length, shared.length - length, null);
      if (read === 0) return shared.toString('latin1', 0, length);
      length += read;
      if (length === shared.length) shared = Buffer.concat([shared], 2 * length);
    }
  } catch {
    return '';
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function readFacts(pid: number): ProcessFacts | undefined {
  const stat = parseStat(text(`/proc/${pid}/stat`));
  if (stat === undefined) return undefined;
  const { threads, ...facts } = stat;
  return threads <= 1 ? facts : { ...facts, state: stateOfThreads(pid, facts.state) };
}

/** The program name is in parentheses and may itself contain some, so the last one is its end. */
export function parseStat(line: string): (ProcessFacts & { readonly threads: number }) | undefined {
  const close = line.lastIndexOf(')');
  if (close === -1) return undefined;
  const fields = line.slice(close + 2).split(' ');
  return {
    pid: Number.parseInt(line, 10),
    state: parseState(fields[0] ?? ''),
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    threads: Number(fields[17]),
    startedAt: fields[19] ?? '',
  };
}

function parseState(letter: string): ProcessState {
  if (letter === 'T' || letter === 't') return 'stopped';
  if (letter === 'D') return 'uninterruptible';
  return letter === 'Z' || letter === 'X' ? 'dead' : 'running';
}

/** The first thread may be stopped or dead while other threads still run. */
function stateOfThreads(pid: number, ofFirst: ProcessState): ProcessState {
  if (ofFirst === 'running') return 'running';
  const states = new Set<ProcessState>();
  for (const thread of threadsOf(pid)) {
    const stat = parseStat(text(`/proc/${pid}/task/${thread}/stat`));
    if (stat !== undefined) states.add(stat.state);
  }
  const order: readonly ProcessState[] = ['running', 'uninterruptible', 'stopped'];
  return order.find((state) => states.has(state)) ?? ofFirst;
}

function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

const LISTENING = '0A';

/** Only the lines of listening sockets are parsed: a busy machine has thousands of lines for connections. */
export function parseListeners(table: string): Listener[] {
  const found: Listener[] = [];
  const mark = ` ${LISTENING} `;
  for (let at = table.indexOf(mark); at >= 0; at = table.indexOf(mark, at + 1)) {
    const end = table.indexOf('\n', at);
    const line = table.slice(table.lastIndexOf('\n', at) + 1, end < 0 ? undefined : end);
    const [, local, , state, , , , user, , inode] = line.trim().split(/\s+/);
    const [address, port] = local?.split(':') ?? [];
    if (state !== LISTENING || !address || !port || !inode) continue;
    found.push({
      address: parseAddress(address),
      port: Number.parseInt(port, 16),
      socket: `socket:[${inode}]`,
      user: Number(user),
    });
  }
  return found;
}

/** The kernel writes an address as 32-bit words, each in the byte order of the machine. */
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
