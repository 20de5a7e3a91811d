/**
 * A slot is four addresses (/30) for one pair of interfaces. The near end has the second address, the far end the third.
 * Between router and sandbox the far end is the guest's; on the uplink the near end is the host's, the far end the router's.
 * The name of the interface contains the slot, so that names are unique on a machine and the slot can be read from the name.
 */
import { formatIpv4, type Ipv4Network, sizeOf } from './ipv4.ts';

export const SLOT_BITS = 30;

/** The first address of the slot. */
export type Slot = number;

/** The first slot of a block is reserved: in one block of each server the uplink uses it. */
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

/** Hardware addresses are derived from the slot, so that neither end needs ARP. */
export function nearHardware(slot: Slot): string {
  return hardwareAddress(1, slot);
}

export function farHardware(slot: Slot): string {
  return hardwareAddress(2, slot);
}

/** A locally administered address. */
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
