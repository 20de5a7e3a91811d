/**
 * The processes behind containers, found by their command lines.
 *
 * A container is a sentry, the kernel that its processes see, and a gofer, which opens files for it. runsc
 * knows them only by the state files in its root directory. Those can be lost while the processes live, can
 * outlive a reboot, and count a dead sentry as running until the machine's first process has collected it.
 */
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { linuxProcesses } from '@torpor/host';

export interface RunscProcess {
  readonly pid: number;
  /** Together with the pid it names one process until the machine restarts. */
  readonly startedAt: string;
  /** Null for a gofer, whose command line does not name its container; the bundle tells. */
  readonly container: string | null;
  readonly bundle: string;
}

/** Every living process that runsc has started for this root directory. */
export async function runscProcesses(root: string): Promise<RunscProcess[]> {
  const alive = (await linuxProcesses.all()).filter(
    ({ state, session }) => state !== 'dead' && session !== 0,
  );
  const found = await Promise.all(
    alive.map(async ({ pid, startedAt }) => {
      const ours = recognise(await commandLine(pid), root);
      return ours === undefined ? [] : [{ pid, startedAt, ...ours }];
    }),
  );
  return found.flat();
}

/**
 * Tells sentries from other processes that have come by their numbers. Each is recognised once: a command line stays as
 * it is, and who wants to read it has to wait while the process is busy with its memory, as a sentry is that wakes.
 */
export class KnownSentries {
  readonly #root: string;
  /** By the container. */
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

  forget(container: string): void {
    this.#known.delete(container);
  }
}

/** Whether it still lives. A zombie does not: it holds no memory, file, mount or namespace any more. */
export async function isAlive({ pid, startedAt }: RunscProcess): Promise<boolean> {
  const facts = await linuxProcesses.read(pid);
  return facts !== undefined && facts.startedAt === startedAt && facts.state !== 'dead';
}

/** A sentry keeps the memory of its processes in one file without a name. */
const MEMORY_FILE = '/memfd:runsc-memory (deleted)';
const BLOCK = 512;

export interface SentryMemory {
  readonly usedBytes: number;
  /** With what was reserved and never touched. */
  readonly reservedBytes: number;
}

/** What the processes of a sentry have of memory; undefined when it cannot be seen. */
export async function sentryMemory(pid: number): Promise<SentryMemory | undefined> {
  const directory = `/proc/${pid}/fd`;
  const names = await readdir(directory).catch(() => []);
  // It is among the first that were opened, and of others there may be thousands.
  for (const name of names.toSorted((a, b) => Number(a) - Number(b))) {
    const path = join(directory, name);
    if ((await readlink(path).catch(() => '')) !== MEMORY_FILE) continue;
    return stat(path).then(
      ({ blocks, size }) => ({ usedBytes: blocks * BLOCK, reservedBytes: size }),
      () => undefined,
    );
  }
  return undefined;
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

/** Not read in place: it waits while the process is busy with its memory. */
async function commandLine(pid: number): Promise<string[]> {
  const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return line.split('\0').slice(0, -1);
}
