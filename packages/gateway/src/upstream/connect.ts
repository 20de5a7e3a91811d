/** Opens a connection to a port of a sandbox. */
import { connect as openSocket, type Socket } from 'node:net';
import type { Address, Clock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

/** No program listens on the port. */
export class PortClosed extends Error {
  override readonly name = 'PortClosed';
}

/** The system's error codes when no program listens, or the listener has just closed. */
const CLOSED: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE']);

export async function connect(address: Address, clock: Clock, ms: number): Promise<Socket> {
  const socket =
    'socketPath' in address
      ? openSocket({ path: address.socketPath, allowHalfOpen: true })
      : openSocket({ host: address.host, port: address.port, allowHalfOpen: true, noDelay: true });
  const timer = new AbortController();
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
      clock.sleep(ms, timer.signal).then(
        () => reject(new TorporError('unreachable', `The port took longer than ${ms} ms to answer.`)),
        () => {},
      );
    });
  } catch (thrown) {
    socket.on('error', () => {});
    socket.destroy();
    const { code = '' } = thrown as NodeJS.ErrnoException;
    if (CLOSED.has(code)) throw new PortClosed(code, { cause: thrown });
    if (thrown instanceof TorporError) throw thrown;
    throw new TorporError('unreachable', 'The port cannot be reached.', { cause: thrown });
  } finally {
    timer.abort();
    socket.removeAllListeners('connect');
  }
  socket.removeAllListeners('error');
  return socket;
}
