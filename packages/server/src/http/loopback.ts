/** Whether an address is this machine's own. */
import { BlockList } from 'node:net';

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** Of an address, as sockets name it; IPv4 may come in the clothes of IPv6. */
export function isLoopback(address: string | undefined): boolean {
  if (address === undefined) return false;
  const plain = address.replace(/^::ffff:/i, '');
  return loopback.check(plain, plain.includes(':') ? 'ipv6' : 'ipv4');
}

/** Of a name to listen on: only names that can mean nothing else. */
export function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || isLoopback(host);
}
