/**
 * The control groups of instances: they limit what an instance uses, and list its processes.
 *
 * The runtime makes them instead of runsc. So a pre-created container gets its limits when its sandbox is known, and the
 * processes of an instance are found even when runsc has lost its state.
 */
import { mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { errnoOf, isMissing } from '@torpor/host';
import type { Resources } from '@torpor/protocol';
import type { MemoryState } from '../caches/memory-pressure.ts';
import { readTextSync } from '../read-text-sync.ts';

const ROOT = '/sys/fs/cgroup';
const MIB = 1024 * 1024;
const CPU_PERIOD_US = 100_000;
/**
 * The agent limits the number of processes inside the guest, where `fork` fails cleanly. The limit here is for a guest
 * whose root has lifted that one: the sentry needs up to two host processes for each process of the guest, and dies when
 * it cannot create one.
 */
const HOST_PROCESSES_PER_PROCESS = 2;
const SENTRY_PROCESSES = 256;
/** Memory of the sentry itself, on top of the limit of the guest. */
const SENTRY_MB = 64;

type CgroupVersion = 'v1' | 'v2';

export interface CgroupHost {
  readonly version: CgroupVersion;
  /** The controllers that the host has, of those that limits need. */
  readonly controllers: readonly Controller[];
}

type Controller = 'memory' | 'cpu' | 'pids';
export const CONTROLLERS: readonly Controller[] = ['memory', 'cpu', 'pids'];

/** How often the kernel has killed a process for lack of memory, and refused to create one. */
export interface Refused {
  readonly memory: number;
  readonly processes: number;
}

/** Null when the host has no controllers that can be used. */
export async function findCgroups(root = ROOT): Promise<CgroupHost | null> {
  const unified = await readFile(join(root, 'cgroup.controllers'), 'utf8').catch(() => undefined);
  if (unified !== undefined) {
    const there = unified.trim().split(' ');
    const controllers = CONTROLLERS.filter((name) => there.includes(name));
    return controllers.length === 0 ? null : { version: 'v2', controllers };
  }
  const there = await readdir(root).catch((): string[] => []);
  const controllers = CONTROLLERS.filter((name) => there.includes(name));
  return controllers.length === 0 ? null : { version: 'v1', controllers };
}

/**
 * The control groups of a server, with its group `parent` made. Null when the host has none, which `torpor doctor` says,
 * or when they cannot be made: sandboxes run without limits then.
 */
export async function openCgroups(
  parent: string,
  report: (what: string, facts: Readonly<Record<string, unknown>>) => void,
  root = ROOT,
): Promise<Cgroups | null> {
  const host = await findCgroups(root);
  if (host === null) return null;
  const cgroups = new Cgroups(host, parent, root);
  try {
    await cgroups.open();
    return cgroups;
  } catch (error) {
    report('the control groups could not be made; sandboxes run without limits', { error });
    return null;
  }
}

/** Makes a group, limits it and removes it. Throws what the kernel refuses. */
export async function tryCgroups(host: CgroupHost, root = ROOT): Promise<void> {
  const cgroups = new Cgroups(host, `torpor-doctor-${process.pid}`, root);
  const name = 'trial';
  try {
    await cgroups.open();
    await cgroups.make(name);
    await cgroups.limit(name, { memoryMb: 64, cpus: 1, processes: 1 });
  } finally {
    await cgroups.remove(name).catch(() => {});
    await cgroups.close().catch(() => {});
  }
}

export class Cgroups {
  readonly #host: CgroupHost;
  readonly #parent: string;
  readonly #root: string;

  /** `parent` is the group of this server; the groups of its instances lie below. */
  constructor(host: CgroupHost, parent: string, root = ROOT) {
    this.#host = host;
    this.#parent = parent;
    this.#root = root;
  }

  get controllers(): readonly Controller[] {
    return this.#host.controllers;
  }

  async open(): Promise<void> {
    for (const directory of this.#directories()) await mkdir(directory, { recursive: true });
    if (this.#host.version === 'v1') return;
    const enable = this.#host.controllers.map((name) => `+${name}`).join(' ');
    await writeFile(join(this.#root, 'cgroup.subtree_control'), enable).catch(() => {});
    await writeFile(join(this.#root, this.#parent, 'cgroup.subtree_control'), enable);
  }

  /** The directories of the group of the server, one for each controller of version 1. */
  directories(): readonly string[] {
    return this.#directories();
  }

  /** May be repeated. */
  async make(name: string): Promise<void> {
    for (const directory of this.#directories(name)) await mkdir(directory, { recursive: true });
  }

  /** Wraps a command so that it runs as a member of the group. */
  wrap(name: string, command: readonly string[]): readonly [string, ...string[]] {
    const files = this.#directories(name).map((directory) => join(directory, 'cgroup.procs'));
    // The script is constant; names are passed as arguments.
    const enter = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1"; shift; n=$((n-1)); done; exec "$@"';
    return ['sh', '-c', enter, 'sh', String(files.length), ...files, ...command];
  }

  /** Sets the given limits and lifts the others. */
  async limit(name: string, { memoryMb, cpus, processes }: Resources): Promise<void> {
    const { version, controllers } = this.#host;
    const memory = memoryMb === undefined ? undefined : (memoryMb + SENTRY_MB) * MIB;
    const quota = cpus === undefined ? undefined : Math.max(1_000, Math.round(cpus * CPU_PERIOD_US));
    const pids =
      processes === undefined ? 'max' : String(HOST_PROCESSES_PER_PROCESS * processes + SENTRY_PROCESSES);
    if (controllers.includes('pids')) await this.#write(name, 'pids', 'pids.max', pids);
    if (version === 'v2') {
      if (controllers.includes('memory')) {
        await this.#write(name, 'memory', 'memory.max', memory === undefined ? 'max' : String(memory));
        await this.#writeIfThere(name, 'memory', 'memory.swap.max', memory === undefined ? 'max' : '0');
      }
      if (controllers.includes('cpu'))
        await this.#write(name, 'cpu', 'cpu.max', `${quota ?? 'max'} ${CPU_PERIOD_US}`);
      return;
    }
    if (controllers.includes('memory')) await this.#limitMemoryV1(name, memory);
    if (controllers.includes('cpu')) {
      await this.#writeIfThere(name, 'cpu', 'cpu.cfs_period_us', String(CPU_PERIOD_US));
      await this.#writeIfThere(name, 'cpu', 'cpu.cfs_quota_us', String(quota ?? -1));
    }
  }

  /** Zero when there is no such group. */
  async refused(name: string): Promise<Refused> {
    const read = (controller: Controller, file: string) =>
      readFile(join(this.#directory(controller, name), file), 'utf8').catch(() => '');
    const [memory, processes] = await Promise.all([
      read('memory', this.#host.version === 'v2' ? 'memory.events' : 'memory.oom_control'),
      read('pids', 'pids.events'),
    ]);
    return {
      memory: Number(/^oom_kill (\d+)$/m.exec(memory)?.[1] ?? 0),
      processes: Number(/^max (\d+)$/m.exec(processes)?.[1] ?? 0),
    };
  }

  /**
   * The memory of the group of the server, with all its sandboxes, and of the outermost group that this process sees, as far
   * as a limit was set on them. In a container the outermost group is that of the container. Files that the kernel can drop
   * count as available.
   */
  limitedMemory(): MemoryState[] {
    const outermost = this.#host.version === 'v2' ? this.#root : join(this.#root, 'memory');
    return [outermost, join(outermost, this.#parent)].flatMap((group) => this.#memoryOf(group) ?? []);
  }

  #memoryOf(group: string): MemoryState | undefined {
    const isV2 = this.#host.version === 'v2';
    const read = (file: string) => readTextSync(join(group, file));
    const totalBytes = Number(read(isV2 ? 'memory.max' : 'memory.limit_in_bytes'));
    // Without a limit the file says `max` (version 2), or a number larger than any memory (version 1). The outermost group of
    // a machine has no such file in version 2.
    if (!Number.isFinite(totalBytes) || totalBytes === 0 || totalBytes > totalmem()) return undefined;
    const usedBytes = Number(read(isV2 ? 'memory.current' : 'memory.usage_in_bytes'));
    const droppable = isV2 ? /^inactive_file (\d+)$/m : /^total_inactive_file (\d+)$/m;
    const fileBytes = Number(droppable.exec(read('memory.stat') ?? '')?.[1] ?? 0);
    return { totalBytes, availableBytes: totalBytes - usedBytes + fileBytes };
  }

  /** The pids of the group's processes. */
  async members(name: string): Promise<number[]> {
    const [directory] = this.#directories(name);
    if (directory === undefined) return [];
    const text = await readFile(join(directory, 'cgroup.procs'), 'utf8').catch((thrown: unknown) => {
      if (isMissing(thrown) || errnoOf(thrown) === 'ENODEV') return '';
      throw thrown;
    });
    // The kernel writes 0 for a process of another container, and 0 would be the server's own process group to `kill`.
    return text
      .split('\n')
      .map(Number)
      .filter((pid) => pid > 0);
  }

  async list(): Promise<string[]> {
    const [directory] = this.#directories();
    if (directory === undefined) return [];
    const entries = await readdir(directory, { withFileTypes: true }).catch(() => []);
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  }

  /** Returns false when the group has members and stays. An absent group is fine. */
  async remove(name: string): Promise<boolean> {
    const removed = await Promise.all(this.#directories(name).map(removeEmpty));
    return removed.every(Boolean);
  }

  /** Removes the group of the server when no group is left below it. */
  async close(): Promise<void> {
    for (const directory of this.#directories()) await removeEmpty(directory);
  }

  /** The kernel wants memory+swap set before memory when the limit shrinks, and after it when the limit grows. */
  async #limitMemoryV1(name: string, memory: number | undefined): Promise<void> {
    const value = memory === undefined ? '-1' : String(memory);
    const swap = () => this.#writeIfThere(name, 'memory', 'memory.memsw.limit_in_bytes', value);
    await swap().catch(() => {});
    await this.#write(name, 'memory', 'memory.limit_in_bytes', value);
    await swap();
  }

  #write(name: string, controller: Controller, file: string, value: string): Promise<void> {
    return writeFile(join(this.#directory(controller, name), file), value);
  }

  async #writeIfThere(name: string, controller: Controller, file: string, value: string): Promise<void> {
    await this.#write(name, controller, file, value).catch((thrown: unknown) => {
      // Writing to a control file that the kernel does not have fails with one of these.
      if (!['ENOENT', 'EACCES', 'EPERM'].includes(errnoOf(thrown) ?? '')) throw thrown;
    });
  }

  #directories(name = ''): string[] {
    if (this.#host.version === 'v2') return [join(this.#root, this.#parent, name)];
    return this.#host.controllers.map((controller) => this.#directory(controller, name));
  }

  #directory(controller: Controller, name: string): string {
    return this.#host.version === 'v2'
      ? join(this.#root, this.#parent, name)
      : join(this.#root, controller, this.#parent, name);
  }
}

async function removeEmpty(directory: string): Promise<boolean> {
  try {
    await rmdir(directory);
    return true;
  } catch (thrown) {
    if (isMissing(thrown)) return true;
    if (errnoOf(thrown) === 'EBUSY' || errnoOf(thrown) === 'ENOTEMPTY') return false;
    throw thrown;
  }
}
