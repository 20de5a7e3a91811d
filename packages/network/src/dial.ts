/** Connects to the first of several addresses that answers, tried in order. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** Further addresses of a name are not worth the wait. */
const MAX_TRIED_ADDRESSES = 3;
const KEEP_ALIVE_MS = 60_000;

/** Takes addresses, never names, so that exactly the checked address is dialled. Undefined when none answers in time. */
export async function dial(
  addresses: readonly string[],
  port: number,
  ms: number,
  signal: AbortSignal,
): Promise<Socket | undefined> {
  for (const host of addresses.slice(0, MAX_TRIED_ADDRESSES)) {
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
 * Whether a connection ended at this machine: it then has the same address on both ends. Unlike a list of addresses, this
 * cannot be out of date.
 */
export function isDialledToSelf({ localAddress, remoteAddress }: Socket): boolean {
  return localAddress === remoteAddress;
}
