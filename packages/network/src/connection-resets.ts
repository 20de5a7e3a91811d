/**
 * Resets every TCP connection between a sandbox and this machine, whichever process has the other end.
 *
 * Connections to the outside are reset before an image is written, so that both ends learn of it. runsc (2026) would
 * restore them as closed: the program would read an ordinary end of stream and take half an answer for a whole one, and
 * the other end would hear nothing; an older runsc cannot restore them.
 */
import { connect } from 'node:net';
import type { Clock } from '@torpor/engine';
import { parseTable, type ReadTable, type TrackedConnection } from './original-destinations.ts';
import { runSystemProgram } from './system-program.ts';

export interface ConnectionResetsOptions {
  readonly netns: string;
  readonly readTable: ReadTable;
  readonly clock: Clock;
}

/** States of connection tracking in which a connection is closed. */
const CLOSED_STATES: readonly string[] = ['CLOSE', 'TIME_WAIT'];

/** How often and how many times the table is read until a reset has arrived. */
const POLL_MS = 10;
const MAX_POLLS = 20;

export class ConnectionResets {
  readonly #options: ConnectionResetsOptions;

  constructor(options: ConnectionResetsOptions) {
    this.#options = options;
  }

  /**
   * Resolves with the connections that the sandbox may still have open, usually none. The router's table lists all
   * connections, so `ss` runs only for directions that have some.
   */
  async reset(address: string): Promise<TrackedConnection[]> {
    const { netns } = this.#options;
    const open = await this.#openConnections(address);
    const kill = ['-K', '-H', '-n', '-t', 'state', 'connected', 'dst', address];
    const isInbound = ({ to }: TrackedConnection) => to.address === address;
    if (open.some(isInbound)) await runSystemProgram('ss', kill);
    if (!open.every(isInbound)) await runSystemProgram('ss', ['-N', netns, ...kill]);
    const left = open.length === 0 ? [] : await this.#openConnections(address);
    return left.some(isInbound) ? this.#probe(address, left.filter(isInbound)) : left;
  }

  async #probe(address: string, abandoned: readonly TrackedConnection[]): Promise<TrackedConnection[]> {
    const sockets = abandoned.map(probeAbandoned);
    try {
      return await this.#waitUntilClosed(address);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  }

  async #openConnections(address: string): Promise<TrackedConnection[]> {
    const connections = parseTable(await this.#options.readTable());
    return connections.filter(
      ({ from, to, state }) =>
        (from.address === address || to.address === address) && !CLOSED_STATES.includes(state),
    );
  }

  async #waitUntilClosed(address: string): Promise<TrackedConnection[]> {
    for (let polls = 1; ; polls++) {
      const open = await this.#openConnections(address);
      if (open.length === 0 || polls === MAX_POLLS) return open;
      await this.#options.clock.sleep(POLL_MS);
    }
  }
}

/**
 * Ends a connection that only the sandbox still has: the host has closed and forgotten it. The host sends a SYN from the
 * same port to the same port. The sandbox answers with its present sequence numbers, and the host, which has no such
 * connection, answers that with a reset.
 */
function probeAbandoned({ from, to }: TrackedConnection) {
  const socket = connect({
    host: to.address,
    port: to.port,
    localAddress: from.address,
    localPort: from.port,
  });
  return socket.on('error', () => {});
}
