/**
 * Notices when a layer that is being written passes its limit.
 *
 * Measuring a layer means walking through it. So a layer is measured only when it can have passed its limit: when the whole
 * file system has lost as much space as the layer had left. The free space is read every 100 ms, because that costs next to
 * nothing. Space that other layers freed can hide the growth of one layer, so each layer is also measured every 30 s.
 *
 * The limit is noticed, not enforced: a sandbox can write more before the next measurement. Where the file system has project
 * quotas, they enforce the limit instead (`project-quotas.ts`).
 */
import { statfs } from 'node:fs/promises';
import type { Clock } from '@torpor/engine';
import type { LayerId } from './layer-id.ts';
import type { Usage } from './layers.ts';

/** An empty file takes space too: each entry counts as at least one block. */
const ENTRY_BYTES = 4096;
/** How often the free space is read. */
const TICK_MS = 100;
/** A layer is measured again after this time, even when the file system shows no reason for it. */
const REMEASURE_AFTER_MS = 30_000;
/** The pause after a measurement, as a multiple of the time that the measurement took. */
const REST_FACTOR = 4;
/** The pause after a measurement or a report that failed. */
const RETRY_MS = 1000;

/** What is left on the file system. */
export interface FreeSpace {
  readonly bytes: number;
  readonly entries: number;
}

export interface LayerWatchOptions {
  readonly usage: (id: LayerId, signal: AbortSignal) => Promise<Usage>;
  readonly room: () => Promise<FreeSpace>;
  readonly clock: Clock;
  /** Called once for each layer that passed its limit, and again later when it throws. */
  readonly passed: (id: LayerId, usage: Usage) => Promise<void>;
  /** Called for a measurement or a report that failed. The watch tries again. */
  readonly failed: (id: LayerId | null, thrown: unknown) => void;
}

interface Watched {
  readonly id: LayerId;
  readonly limit: number;
  last: { readonly usage: Usage; readonly room: FreeSpace; readonly at: number } | null;
  /** How much the layer had grown at the last measurement. */
  growth: number;
  dueFrom: number;
  isReported: boolean;
}

/** The free space of the file system that a path is on. */
export async function freeSpaceOf(path: string): Promise<FreeSpace> {
  const { bfree, bsize, ffree } = await statfs(path);
  return { bytes: bfree * bsize, entries: ffree };
}

/** How much of its limit a layer uses. */
export function billableBytes({ bytes, entries }: Usage): number {
  return Math.max(bytes, entries * ENTRY_BYTES);
}

export class LayerWatch {
  readonly #options: LayerWatchOptions;
  readonly #watched = new Map<LayerId, Watched>();
  readonly #stop = new AbortController();
  #running: Promise<void> | null = null;

  constructor(options: LayerWatchOptions) {
    this.#options = options;
  }

  /** Watches a layer, or gives it another limit. */
  watch(id: LayerId, limitBytes: number): void {
    const fresh = { id, limit: limitBytes, last: null, growth: 0, dueFrom: 0, isReported: false };
    this.#watched.set(id, fresh);
    if (!this.#stop.signal.aborted) this.#running ??= this.#run();
  }

  unwatch(id: LayerId): void {
    this.#watched.delete(id);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  /** Runs for as long as there is a layer to watch. */
  async #run(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stop;
    while (this.#watched.size > 0 && !signal.aborted) {
      await this.#measureDue();
      await clock.sleep(TICK_MS, signal).catch(() => {});
    }
    this.#running = null;
  }

  async #measureDue(): Promise<void> {
    const room = await this.#options.room().catch((thrown: unknown) => {
      this.#options.failed(null, thrown);
      return undefined;
    });
    if (room === undefined) return;
    const now = this.#options.clock.monotonic();
    const due = [...this.#watched.values()].filter((watched) => isDue(watched, room, now));
    // A layer that grew before is the likeliest to have grown again.
    due.sort((a, b) => b.growth - a.growth);
    for (const watched of due) {
      if (this.#stop.signal.aborted) return;
      if (this.#watched.get(watched.id) === watched) await this.#measure(watched, room);
    }
  }

  async #measure(watched: Watched, room: FreeSpace): Promise<void> {
    const { clock, usage, failed } = this.#options;
    const began = clock.monotonic();
    let rest = 0;
    try {
      const found = await usage(watched.id, this.#stop.signal);
      watched.growth = billableBytes(found) - (watched.last === null ? 0 : billableBytes(watched.last.usage));
      watched.last = { usage: found, room, at: began };
      if (billableBytes(found) > watched.limit) this.#report(watched, found);
    } catch (thrown) {
      rest = RETRY_MS;
      // A layer that was unwatched and removed meanwhile cannot be measured.
      if (this.#watched.get(watched.id) === watched && !this.#stop.signal.aborted) failed(watched.id, thrown);
    }
    const ended = clock.monotonic();
    watched.dueFrom = ended + Math.max(rest, REST_FACTOR * (ended - began));
  }

  /** Does not wait for the report: the other layers must be watched meanwhile. */
  #report(watched: Watched, usage: Usage): void {
    if (watched.isReported || this.#watched.get(watched.id) !== watched) return;
    watched.isReported = true;
    this.#options.passed(watched.id, usage).catch((thrown: unknown) => {
      watched.isReported = false;
      watched.dueFrom = this.#options.clock.monotonic() + RETRY_MS;
      this.#options.failed(watched.id, thrown);
    });
  }
}

function isDue({ limit, last, dueFrom, isReported }: Watched, room: FreeSpace, now: number): boolean {
  if (isReported || now < dueFrom) return false;
  if (last === null || now - last.at >= REMEASURE_AFTER_MS) return true;
  const bytes = last.usage.bytes + Math.max(0, last.room.bytes - room.bytes);
  const entries = last.usage.entries + Math.max(0, last.room.entries - room.entries);
  return billableBytes({ bytes, entries }) > limit;
}
