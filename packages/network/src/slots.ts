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

/** The hardware addresses of the pair are known beforehand, so that neither has to ask the other for it. */
export function nearHardware(slot: Slot): string {
  return hardwareAddress(1, slot);
}

export function farHardware(slot: Slot): string {
  return hardwareAddress(2, slot);
}

/** One that this machine has given itself, not a manufacturer. */
function hardwareAddress(end: number, slot: Slot): string {
  return `020${end}${digitsOf(slot)}`.replace(/..(?!$)/g, '$&:');
}

export function interfaceName(slot: Slot): string {
  return `tp${digitsOf(slot)}`;
}

export function slotOfInterface(name: string): Slot | undefined {
  const [, digits] = /^tp([0-9a-f]{8})$/.exec(name) ?? [];
  return digits === undefined ? undefined : Number.parseInt(digits, 16);
}

function digitsOf(slot: Slot): string {
  return slot.toString(16).padStart(8, '0');
}
