/**
 * A slot is four addresses for one pair of interfaces: ours is the second, the other side's the third. The
 * interface is named for it, so that a name can be read back and is never given twice on one machine.
 */
import { formatIpv4, type Ipv4Network, sizeOf } from './ipv4.ts';

export const SLOT_BITS = 30;

/** Known by its first address. */
export type Slot = number;

/** The first slot of a block is never a sandbox's: in one block of each server the uplink has it. */
export function firstSlot(block: Ipv4Network): Slot {
  return block.base;
}

export function sandboxSlots(block: Ipv4Network): Slot[] {
  const size = sizeOf(SLOT_BITS);
  return Array.from({ length: sizeOf(block.bits) / size - 1 }, (_, index) => block.base + (index + 1) * size);
}

export function nearAddress(slot: Slot): string {
  return formatIpv4(slot + 1);
}

export function farAddress(slot: Slot): string {
  return formatIpv4(slot + 2);
}

export function interfaceName(slot: Slot): string {
  return `tp${slot.toString(16).padStart(8, '0')}`;
}

export function slotOfInterface(name: string): Slot | undefined {
  const [, digits] = /^tp([0-9a-f]{8})$/.exec(name) ?? [];
  return digits === undefined ? undefined : Number.parseInt(digits, 16);
}
