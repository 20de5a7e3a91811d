/**
 * The memory for caches: what can be given back at any time without losing anything. Paused sandboxes that stay in memory,
 * memory images at hand and pre-created containers share one budget, and the least recently used of them goes first.
 */
import { totalmem } from 'node:os';

const SHARE_OF_MACHINE = 1 / 4;
const MIB = 1024 * 1024;

/** A thing in memory that can be dropped. */
export interface Droppable {
  readonly bytes: number;
  /** Called once, after the thing was removed from the budget. Never rejects. */
  drop(): Promise<void>;
}

/** `megabytes` as the operator set it; 0 means a share of the machine. */
export function budgetBytes(megabytes: number, machine = machineBytes()): number {
  return megabytes > 0 ? megabytes * MIB : Math.floor(machine * SHARE_OF_MACHINE);
}

/** In a container the limit of the container counts. */
function machineBytes(): number {
  // Zero means that there is no limit.
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

export class MemoryBudget {
  readonly #bytes: number;
  /** Least recently used first. */
  readonly #kept = new Set<Droppable>();
  readonly #dropping = new Set<Promise<void>>();

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#kept.size === 0;
  }

  get usedBytes(): number {
    let used = 0;
    for (const { bytes } of this.#kept) used += bytes;
    return used;
  }

  /** Adds a thing, or marks it as used just now. Drops others until all fit; false when it does not fit by itself. */
  add(thing: Droppable): boolean {
    this.#kept.delete(thing);
    if (thing.bytes > this.#bytes) return false;
    this.free(this.usedBytes + thing.bytes - this.#bytes);
    this.#kept.add(thing);
    return true;
  }

  /** The owner has used the thing up or dropped it. */
  remove(thing: Droppable): void {
    this.#kept.delete(thing);
  }

  /** Drops the least recently used things until at least this many bytes are given back. Returns at once. */
  free(bytes: number): void {
    let freed = 0;
    for (const thing of this.#kept) {
      if (freed >= bytes) return;
      freed += thing.bytes;
      this.#kept.delete(thing);
      const dropping = thing.drop().finally(() => this.#dropping.delete(dropping));
      this.#dropping.add(dropping);
    }
  }

  /** Resolves when everything that was dropped is gone. */
  async settled(): Promise<void> {
    await Promise.all(this.#dropping);
  }
}
