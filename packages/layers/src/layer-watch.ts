/**
 * Notices when a layer that is being written passes its limit.
 *
 * To measure a layer is to walk through it, so that it is done only when the layer can have passed its limit:
 * when the whole file system has lost as much room as the layer had left. That is asked all the time, because
 * it costs next to nothing. Room that others gave back meanwhile can hide what one took, so that each layer is
 * measured now and then all the same.
 *
 * This is a limit that is noticed, not one that is enforced: what is written until then is written. (Project
 * quotas would enforce it; to set one takes `setquota` or `xfs_quota`, which machines do not have by default,
 * and files cannot be linked between projects, which merging does.)
 */
import { statfs } from 'node:fs/promises';
import type { Clock } from '@torpor/engine';
import type { LayerId } from './layer-id.ts';
import type { Usage } from './layers.ts';

/** Files take room even when they are empty: each counts as one block at least. */
const ENTRY_BYTES = 4096;
/** How often the file system is asked. */
const TICK_MS = 100;
/** How long a measurement is believed when the file system shows no reason for doubt. */
const BELIEVED_MS = 30_000;
/** A layer is left alone for so many times as long as it took to measure it. */
const REST = 4;
/** And for so long when it could not be measured, or what was found could not be told. */
const RETRY_MS = 1000;

/** Room left on the file system. */
export interface Room {
  readonly bytes: number;
  readonly entries: number;
}

export interface LayerWatchOptions {
  readonly usage: (id: LayerId, signal: AbortSignal) => Promise<Usage>;
  readonly room: () => Promise<Room>;
  readonly clock: Clock;
  /** Called for each layer once; again later when it throws. */
  readonly passed: (id: LayerId, usage: Usage) => Promise<void>;
  /** What could not be measured; it is tried again. */
  readonly failed: (id: LayerId | null, thrown: unknown) => void;
}

interface Watched {
  readonly id: LayerId;
  readonly limit: number;
  last: { readonly usage: Usage; readonly room: Room; readonly at: number } | null;
  /** By how much it had grown when it was last measured. */
  growth: number;
  notBefore: number;
  isTold: boolean;
}

/** The room of the file system that a path is on. */
export async function roomOf(path: string): Promise<Room> {
  const { bfree, bsize, ffree } = await statfs(path);
  return { bytes: bfree * bsize, entries: ffree };
}

/** What a layer is taken to use of its limit. */
export function chargeOf({ bytes, entries }: Usage): number {
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
    const fresh = { id, limit: limitBytes, last: null, growth: 0, notBefore: 0, isTold: false };
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

  /** For as long as there is something to watch. */
  async #run(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stop;
    while (this.#watched.size > 0 && !signal.aborted) {
      await this.#round();
      await clock.sleep(TICK_MS, signal).catch(() => {});
    }
    this.#running = null;
  }

  async #round(): Promise<void> {
    const room = await this.#options.room().catch((thrown: unknown) => {
      this.#options.failed(null, thrown);
      return undefined;
    });
    if (room === undefined) return;
    const now = this.#options.clock.monotonic();
    const due = [...this.#watched.values()].filter((watched) => isDue(watched, room, now));
    // Who grew before is the likeliest to have grown again, and the others can wait for it.
    due.sort((a, b) => b.growth - a.growth);
    for (const watched of due) {
      if (this.#stop.signal.aborted) return;
      if (this.#watched.get(watched.id) === watched) await this.#measure(watched, room);
    }
  }

  async #measure(watched: Watched, room: Room): Promise<void> {
    const { clock, usage, failed } = this.#options;
    const began = clock.monotonic();
    let rest = 0;
    try {
      const found = await usage(watched.id, this.#stop.signal);
      watched.growth = chargeOf(found) - (watched.last === null ? 0 : chargeOf(watched.last.usage));
      watched.last = { usage: found, room, at: began };
      if (chargeOf(found) > watched.limit) this.#tell(watched, found);
    } catch (thrown) {
      rest = RETRY_MS;
      // It may have been unwatched and removed meanwhile.
      if (this.#watched.get(watched.id) === watched && !this.#stop.signal.aborted) failed(watched.id, thrown);
    }
    const ended = clock.monotonic();
    watched.notBefore = ended + Math.max(rest, REST * (ended - began));
  }

  /** Not waited for: what has to be done with one must not keep the others unwatched. */
  #tell(watched: Watched, usage: Usage): void {
    if (watched.isTold || this.#watched.get(watched.id) !== watched) return;
    watched.isTold = true;
    this.#options.passed(watched.id, usage).catch((thrown: unknown) => {
      watched.isTold = false;
      watched.notBefore = this.#options.clock.monotonic() + RETRY_MS;
      this.#options.failed(watched.id, thrown);
    });
  }
}

function isDue({ limit, last, notBefore, isTold }: Watched, room: Room, now: number): boolean {
  if (isTold || now < notBefore) return false;
  if (last === null || now - last.at >= BELIEVED_MS) return true;
  const bytes = last.usage.bytes + Math.max(0, last.room.bytes - room.bytes);
  const entries = last.usage.entries + Math.max(0, last.room.entries - room.entries);
  return chargeOf({ bytes, entries }) > limit;
}
