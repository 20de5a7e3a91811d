/**
 * Finds the host processes of containers by their command lines.
 *
 * A container consists of a sentry, the kernel that its processes see, and a gofer, which opens files for the sentry.
 * runsc knows both only from the state files in its root directory. Those files can be lost while the processes live,
 * can outlive a reboot, and count a dead sentry as running until the host's init process has reaped it.
 */
import { closeSync, openSync, read, readlinkSync, statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { linuxProcesses } from '@torpor/host';

export interface RunscProcess {
  readonly pid: number;
  /** Together with the pid it identifies one process until the host reboots. */
  readonly startedAt: string;
  /** Null for a gofer: its command line names the bundle, not the container. */
  readonly container: string | null;
  readonly bundle: string;
}

/** Every living process that runsc has started with this root directory. */
export async function runscProcesses(root: string): Promise<RunscProcess[]> {
  const alive = (await linuxProcesses.all()).filter(
    ({ state, session }) => state !== 'dead' && session !== 0,
  );
  const found = await Promise.all(
    alive.map(async ({ pid, startedAt }) => {
      const recognised = recognise(await commandLine(pid), root);
      return recognised === undefined ? [] : [{ pid, startedAt, ...recognised }];
    }),
  );
  return found.flat();
}

/**
 * Distinguishes a sentry from another process that was given the same pid later. Each sentry's command line is read only
 * once: it does not change, and reading it blocks while the process is busy with its memory map, as a sentry is that is
 * being restored.
 */
export class KnownSentries {
  readonly #root: string;
  /** By container id. */
  readonly #known = new Map<string, Pick<RunscProcess, 'pid' | 'startedAt'>>();

  constructor(root: string) {
    this.#root = root;
  }

  /** Whether the process is the living sentry of this container. */
  async isSentryOf(pid: number, container: string): Promise<boolean> {
    const facts = await linuxProcesses.read(pid);
    if (facts === undefined || facts.state === 'dead') return false;
    const { startedAt } = facts;
    const known = this.#known.get(container);
    if (known?.pid === pid && known.startedAt === startedAt) return true;
    if (recognise(await commandLine(pid), this.#root)?.container !== container) return false;
    this.#known.set(container, { pid, startedAt });
    return true;
  }

  /**
   * The living sentry that was last seen of this container. A sentry that is ending has no command line any more: only its pid
   * and its start time tell that it still lives.
   */
  async living(container: string): Promise<Pick<RunscProcess, 'pid' | 'startedAt'> | undefined> {
    const known = this.#known.get(container);
    return known !== undefined && (await isAlive(known)) ? known : undefined;
  }

  evict(container: string): void {
    this.#known.delete(container);
  }
}

/** A zombie counts as dead: it holds no memory, file, mount or namespace any more. */
export async function isAlive({ pid, startedAt }: Pick<RunscProcess, 'pid' | 'startedAt'>): Promise<boolean> {
  const facts = await linuxProcesses.read(pid);
  return facts !== undefined && facts.startedAt === startedAt && facts.state !== 'dead';
}

/** A sentry keeps the memory of its processes in one memfd. */
const MEMORY_FILE = '/memfd:runsc-memory (deleted)';
const BLOCK = 512;

export interface SentryMemory {
  readonly usedBytes: number;
  /** Includes memory that was reserved and never touched. */
  readonly reservedBytes: number;
}

/** The sentry opens its memory file early, and may have thousands of others: the file has one of the lowest descriptors. */
const LIKELY_DESCRIPTORS = 64;

/** The memory of a sentry's processes; undefined when it cannot be read. */
export async function sentryMemory(pid: number): Promise<SentryMemory | undefined> {
  const directory = `/proc/${pid}/fd`;
  // Synchronous: the kernel has these links in memory, and each asynchronous call takes longer than the read.
  for (let descriptor = 0; descriptor < LIKELY_DESCRIPTORS; descriptor++) {
    const found = memoryBehind(join(directory, String(descriptor)));
    if (found !== undefined) return found;
  }
  const names = await readdir(directory).catch(() => []);
  for (const name of names.toSorted((a, b) => Number(a) - Number(b))) {
    const found = memoryBehind(join(directory, name));
    if (found !== undefined) return found;
  }
  return undefined;
}

function memoryBehind(descriptor: string): SentryMemory | undefined {
  try {
    if (readlinkSync(descriptor) !== MEMORY_FILE) return undefined;
    const { blocks, size } = statSync(descriptor);
    return { usedBytes: blocks * BLOCK, reservedBytes: size };
  } catch {
    return undefined;
  }
}

export function recognise(
  argv: readonly string[],
  root: string,
): Pick<RunscProcess, 'container' | 'bundle'> | undefined {
  const [name] = argv;
  if ((name !== 'runsc-sandbox' && name !== 'runsc-gofer') || !argv.includes(`--root=${root}`))
    return undefined;
  const bundle = argv.find((word) => word.startsWith('--bundle='))?.slice('--bundle='.length) ?? '';
  return { container: name === 'runsc-sandbox' ? (argv.at(-1) ?? '') : null, bundle };
}

const readFrom = promisify(read);
/** Longer than the command line of a sentry, and short enough for Node's pool of buffers. */
const PIECE = 2048;

/**
 * Only the read is asynchronous, because it alone blocks while the process is busy with its memory map. `readFile` would go
 * through the thread pool five times for each process of the host.
 */
async function commandLine(pid: number): Promise<string[]> {
  let file: number | undefined;
  try {
    file = openSync(`/proc/${pid}/cmdline`, 'r');
    const pieces: Buffer[] = [];
    for (;;) {
      const { bytesRead, buffer } = await readFrom(file, Buffer.allocUnsafe(PIECE), 0, PIECE, null);
      pieces.push(buffer.subarray(0, bytesRead));
      // The kernel fills the buffer when there is more.
      if (bytesRead < PIECE) return Buffer.concat(pieces).toString().split('\0').slice(0, -1);
    }
  } catch {
    return [];
  } finally {
    if (file !== undefined) closeSync(file);
  }
}
