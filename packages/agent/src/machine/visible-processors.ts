/**
 * Sets the number of processors that programs of the sandbox see.
 *
 * gVisor shows the processors of the machine on which a sandbox was booted, and a memory image keeps their number. So the
 * agent changes the two places where programs look. Most ask the kernel which processors they may use, as `nproc` does:
 * the agent sets its own affinity, and every process that it starts inherits it. Others read /proc/cpuinfo or
 * /sys/devices/system/cpu: files of the agent are mounted over these at boot, so that a change only writes files.
 *
 * gVisor does not enforce the affinity. The server limits the processor time from outside.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const CPUINFO = '/proc/cpuinfo';
const CPU_DIRECTORY = '/sys/devices/system/cpu';
/** All three hold the same list. */
const LISTS = ['online', 'possible', 'present'].map((name) => join(CPU_DIRECTORY, name));

/** Four mounts take milliseconds; after this long they are stuck. */
const TIMEOUT_MS = 10_000;

export class VisibleProcessors {
  readonly #ofMachine = availableParallelism();
  #visible = this.#ofMachine;
  #cover: Cover | undefined;

  /** Mounts files in this directory over those of /proc and /sys. Returns whether that worked. */
  async coverFiles(directory: string): Promise<boolean> {
    this.#cover = await Cover.mount(directory, this.#ofMachine).catch(() => undefined);
    return this.#cover !== undefined;
  }

  /** Returns whether programs see this number now. It is at most the number that the sandbox was booted with. */
  async set(count: number): Promise<boolean> {
    const visible = Math.max(1, Math.min(count, this.#ofMachine));
    // A sandbox that was resumed with its memory has the number already.
    if (visible !== this.#visible) {
      const isSet = await setAffinity(visible);
      if (!isSet) return false;
      this.#cover?.write(visible);
      this.#visible = visible;
    }
    return visible === count;
  }
}

/** Returns whether this process has the affinity now. It has not where there is no `taskset` program. */
function setAffinity(count: number): Promise<boolean> {
  const args = ['-cp', processorList(count), String(process.pid)];
  return promisify(execFile)('taskset', args).then(
    () => true,
    () => false,
  );
}

/** The files that are mounted over those of /proc and /sys. */
class Cover {
  readonly #directory: string;
  readonly #cpuinfo: string;

  private constructor(directory: string, cpuinfo: string) {
    this.#directory = directory;
    this.#cpuinfo = cpuinfo;
  }

  static async mount(directory: string, count: number): Promise<Cover> {
    mkdirSync(directory, { recursive: true, mode: 0o755 });
    const cover = new Cover(directory, readFileSync(CPUINFO, 'utf8'));
    cover.write(count);
    // One program for all mounts: each start of a program takes longer than a mount.
    const table = join(directory, 'fstab');
    const mounts = [
      [join(directory, 'cpuinfo'), CPUINFO],
      ...LISTS.map((list) => [join(directory, 'list'), list]),
    ];
    writeFileSync(table, mounts.map(([from, to]) => `${from} ${to} none bind 0 0\n`).join(''));
    await promisify(execFile)('mount', ['-a', '-T', table], { timeout: TIMEOUT_MS });
    return cover;
  }

  write(count: number): void {
    writeFileSync(join(this.#directory, 'cpuinfo'), cpuinfoOf(this.#cpuinfo, count), { mode: 0o644 });
    writeFileSync(join(this.#directory, 'list'), `${processorList(count)}\n`, { mode: 0o644 });
  }
}

/** The first processors of a /proc/cpuinfo. */
export function cpuinfoOf(text: string, count: number): string {
  const processors = text.split(/(?<=\n\n)/).slice(0, count);
  return processors.join('').replace(/^((?:siblings|cpu cores)\s*: )\d+$/gm, `$1${count}`);
}

/** As the kernel writes lists of processors: `0` or `0-3`. */
function processorList(count: number): string {
  return count === 1 ? '0' : `0-${count - 1}`;
}
