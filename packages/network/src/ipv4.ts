/** IPv4 addresses and networks as numbers. Sandboxes have no IPv6. */
import { isIPv4 } from 'node:net';

export interface Ipv4Network {
  readonly base: number;
  readonly bits: number;
}

export function parseIpv4(text: string): number | undefined {
  if (!isIPv4(text)) return undefined;
  return text.split('.').reduce((value, part) => value * 256 + Number(part), 0);
}

export function formatIpv4(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 0xff).join('.');
}

/** An address without a prefix is a network of one address. Bits past the prefix are cleared. */
export function parseIpv4Network(text: string): Ipv4Network | undefined {
  const [, host, prefix] = /^([\d.]+)(?:\/(\d{1,2}))?$/.exec(text) ?? [];
  const address = host === undefined ? undefined : parseIpv4(host);
  const bits = prefix === undefined ? 32 : Number(prefix);
  if (address === undefined || bits > 32) return undefined;
  return { base: address - (address % sizeOf(bits)), bits };
}

export function formatIpv4Network({ base, bits }: Ipv4Network): string {
  return `${formatIpv4(base)}/${bits}`;
}

export function sizeOf(bits: number): number {
  return 2 ** (32 - bits);
}

export function contains({ base, bits }: Ipv4Network, address: number): boolean {
  return address >= base && address < base + sizeOf(bits);
}

export function overlap(one: Ipv4Network, other: Ipv4Network): boolean {
  return contains(one, other.base) || contains(other, one.base);
}

/** For constants and networks that were checked before. Throws for others. */
export function ipv4Network(text: string): Ipv4Network {
  const network = parseIpv4Network(text);
  if (network === undefined) throw new TypeError(`not an IPv4 network: ${text}`);
  return network;
}
