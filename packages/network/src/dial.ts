/** Opens a connection to one of a few addresses, tried in their order. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** More addresses of one name are not worth the waiting. */
const TRIED_AT_MOST = 3;
const KEEP_ALIVE_MS = 60_000;

/** Addresses only, never names: what is dialled is what was checked. Undefined when none answers in time. */
export async function dial(
  addresses: readonly string[],
  port: number,
  ms: number,
  signal: AbortSignal,
): Promise<Socket | undefined> {
  for (const host of addresses.slice(0, TRIED_AT_MOST)) {
    const socket = connect({
      host,
      port,
      allowHalfOpen: true,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
    });
    try {
      await once(socket, 'connect', { signal: AbortSignal.any([signal, AbortSignal.timeout(ms)]) });
      return socket;
    } catch {
      socket.on('error', () => {}).destroy();
      if (signal.aborted) return undefined;
    }
  }
  return undefined;
}

/**
 * A connection to an address of this machine has that address on both ends. Seen so, no list of addresses can
 * be out of date.
 */
export function isDialledToSelf({ localAddress, remoteAddress }: Socket): boolean {
  return localAddress === remoteAddress;
}
