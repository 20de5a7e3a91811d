/** Whether an address is a loopback address. */
import { BlockList } from 'node:net';

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** Takes the address of a socket, which may be an IPv4-mapped IPv6 address. */
export function isLoopback(address: string | undefined): boolean {
  if (address === undefined) return false;
  const plain = address.replace(/^::ffff:/i, '');
  return loopback.check(plain, plain.includes(':') ? 'ipv6' : 'ipv4');
}

/** Takes a host name to listen on. Only `localhost` is certain to be a loopback name. */
export function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || isLoopback(host);
}
