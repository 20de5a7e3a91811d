/** Processor, memory and disk usage of the sandbox, with the field names of E2B's clients. */
import { readFile, statfs } from 'node:fs/promises';
import { availableParallelism, cpus } from 'node:os';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { MetricsSchema } from '@torpor/envd';
import { type ProcessScope, sandboxProcesses } from '../processes/sandbox-processes.ts';

const PAGE_BYTES = 4096;
const TICKS_PER_SECOND = 100;
const MIB = 1024 * 1024;

export class MetricsSource {
  readonly #scope: () => ProcessScope;
  readonly #disk: string;
  #last: { readonly busyMs: number; readonly atMs: number } | undefined;

  constructor(scope: () => ProcessScope, disk: string) {
    this.#scope = scope;
    this.#disk = disk;
  }

  /** Forgets the last reading: while the sandbox was paused, time passed that its processor counters do not show. */
  restart(): void {
    this.#last = undefined;
  }

  async read(nowMs: number, monotonicMs: number): Promise<MessageInitShape<typeof MetricsSchema>> {
    const memory = parseMeminfo(await readFile('/proc/meminfo', 'utf8').catch(() => ''));
    const { bavail, bfree, blocks, bsize } = await statfs(this.#disk);
    const own = this.#scope().shared === undefined ? undefined : await sandboxProcesses(this.#scope());
    const memUsed = own
      ? own.reduce((sum, process) => sum + process.residentPages * PAGE_BYTES, 0)
      : memory.total - memory.available;
    const busyMs = own
      ? own.reduce((sum, process) => sum + (process.ticks * 1000) / TICKS_PER_SECOND, 0)
      : machineBusyMs();
    return {
      ts: Math.floor(nowMs / 1000),
      cpuCount: availableParallelism(),
      cpuUsedPct: this.#percent(busyMs, monotonicMs),
      memUsed,
      memTotal: memory.total,
      memCache: own ? 0 : memory.cached,
      diskUsed: (blocks - bfree) * bsize,
      diskTotal: blocks * bsize,
      diskFree: bavail * bsize,
      memUsedMib: Math.floor(memUsed / MIB),
      memTotalMib: Math.floor(memory.total / MIB),
    };
  }

  /** The share of all processors together since the previous reading; 0 for the first reading. */
  #percent(busyMs: number, atMs: number): number {
    const last = this.#last;
    this.#last = { busyMs, atMs };
    if (last === undefined || atMs <= last.atMs) return 0;
    const share = (busyMs - last.busyMs) / ((atMs - last.atMs) * availableParallelism());
    return Math.round(Math.min(Math.max(share, 0), 1) * 10_000) / 100;
  }
}

function machineBusyMs(): number {
  return cpus().reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0);
}

function parseMeminfo(text: string): { total: number; available: number; cached: number } {
  const bytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)?.[1] ?? 0) * 1024;
  return {
    total: bytes('MemTotal'),
    available: bytes('MemAvailable') || bytes('MemFree'),
    cached: bytes('Cached'),
  };
}
