/** The slots of one server: those of the blocks it has claimed, and of another block when they are used up. */
import type { AddressBlocks } from './address-blocks.ts';
import type { Ipv4Network } from './ipv4.ts';
import { type Slot, sandboxSlots } from './slots.ts';

export class SlotPool {
  readonly #addresses: AddressBlocks;
  readonly #onBlock: (block: Ipv4Network) => Promise<void>;
  /** The one that was given back last is given out last: what still knows it has time to forget. */
  readonly #free: Slot[] = [];
  readonly #blocks: Ipv4Network[];
  #growing: Promise<void> | undefined;

  /** `onBlock` makes a new block reachable before a slot of it is given out. */
  constructor(
    addresses: AddressBlocks,
    blocks: readonly Ipv4Network[],
    used: ReadonlySet<Slot>,
    onBlock: (block: Ipv4Network) => Promise<void>,
  ) {
    this.#addresses = addresses;
    this.#blocks = [...blocks];
    this.#onBlock = onBlock;
    this.#free.push(...blocks.flatMap(sandboxSlots).filter((slot) => !used.has(slot)));
  }

  async take(): Promise<Slot> {
    for (;;) {
      const slot = this.#free.shift();
      if (slot !== undefined) return slot;
      this.#growing ??= this.#grow().finally(() => {
        this.#growing = undefined;
      });
      await this.#growing;
    }
  }

  give(slot: Slot): void {
    this.#free.push(slot);
  }

  async releaseAll(): Promise<void> {
    for (const block of this.#blocks.splice(0)) await this.#addresses.release(block);
  }

  async #grow(): Promise<void> {
    const block = await this.#addresses.claim();
    this.#blocks.push(block);
    await this.#onBlock(block);
    this.#free.push(...sandboxSlots(block));
  }
}
