/**
 * Gives the memory of caches back as soon as the machine, the control group of all sandboxes, or the container around the
 * server runs short of it. Checked several times a second, because a sandbox can take a hundred megabytes in that time; one
 * check reads a few small files of the kernel, and none at all while there is no cache.
 */
import { readFileSync } from 'node:fs';
import type { Cgroups } from '../container/cgroups.ts';
import type { RuntimeContext } from '../runtime-context.ts';

const CHECK_EVERY_MS = 200;
const KIB = 1024;
/** This share of all memory should be free, but no more than `MOST_FREE_BYTES`. */
const FREE_SHARE = 1 / 10;
const MOST_FREE_BYTES = 1024 ** 3;

/** All memory of the machine or of a control group, and as much of it as can be taken without swapping. */
export interface MemoryState {
  readonly totalBytes: number;
  readonly availableBytes: number;
}

/** How many bytes should be given back now. */
export function missingBytes({ totalBytes, availableBytes }: MemoryState): number {
  const wanted = Math.min(totalBytes * FREE_SHARE, MOST_FREE_BYTES);
  return Math.max(0, Math.ceil(wanted - availableBytes));
}

export class MemoryPressure {
  readonly #closing = new AbortController();
  readonly #watching: Promise<void>;

  constructor(ctx: Pick<RuntimeContext, 'warmMemory' | 'cgroups' | 'clock' | 'report'>) {
    this.#watching = this.#watch(ctx);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#watching;
  }

  async #watch({
    warmMemory,
    cgroups,
    clock,
    report,
  }: Pick<RuntimeContext, 'warmMemory' | 'cgroups' | 'clock' | 'report'>): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await clock.sleep(CHECK_EVERY_MS, signal).catch(() => {});
      if (signal.aborted || warmMemory.isEmpty) continue;
      const missing = mostMissing(cgroups);
      if (missing === 0) continue;
      report('memory is short: caches are dropped', { missing, held: warmMemory.usedBytes });
      warmMemory.free(missing);
      // The kernel counts the memory of a killed process as free only when the process is gone.
      await warmMemory.settled();
    }
  }
}

function mostMissing(cgroups: Cgroups | null): number {
  const states = [machineMemory(), ...(cgroups?.limitedMemory() ?? [])].filter(
    (state) => state !== undefined,
  );
  return Math.max(0, ...states.map(missingBytes));
}

function machineMemory(path = '/proc/meminfo'): MemoryState | undefined {
  try {
    const text = readFileSync(path, 'utf8');
    const bytesOf = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1]) * KIB;
    const [totalBytes, availableBytes] = [bytesOf('MemTotal'), bytesOf('MemAvailable')];
    return Number.isFinite(totalBytes + availableBytes) ? { totalBytes, availableBytes } : undefined;
  } catch {
    return undefined;
  }
}
