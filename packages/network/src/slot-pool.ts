/** The free slots of one server. Claims another block when all slots are used. */
import type { AddressBlocks } from './address-blocks.ts';
import type { Ipv4Network } from './ipv4.ts';
import { type Slot, sandboxSlots } from './slots.ts';

export class SlotPool {
  readonly #addresses: AddressBlocks;
  readonly #onBlock: (block: Ipv4Network) => Promise<void>;
  /** A queue: the slot that was given back last is used last, so that old connections to it have expired. */
  readonly #free: Slot[] = [];
  readonly #blocks: Ipv4Network[];
  #growing: Promise<void> | undefined;

  /** `onBlock` adds the route to a new block before its slots are used. */
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

  giveBack(slot: Slot): void {
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
