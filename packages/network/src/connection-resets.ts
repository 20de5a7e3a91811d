/**
 * Ends every TCP connection between a sandbox and this machine, in whatever process its other end is. A memory
 * image cannot be made while one is open, and both sides must hear of the end.
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

/** What is over, by the names of connection tracking. */
const OVER: readonly string[] = ['CLOSE', 'TIME_WAIT'];

/** How often it is looked whether a reset has arrived, and how many times. */
const LOOK_EVERY_MS = 10;
const LOOKS = 20;

export class ConnectionResets {
  readonly #options: ConnectionResetsOptions;

  constructor(options: ConnectionResetsOptions) {
    this.#options = options;
  }

  /**
   * Resolves with those that the sandbox may still have open, usually none. The router's table knows all of them,
   * so that nothing is done about a direction in which none is.
   */
  async reset(address: string): Promise<TrackedConnection[]> {
    const { netns } = this.#options;
    const open = await this.#open(address);
    const kill = ['-K', '-H', '-n', '-t', 'state', 'connected', 'dst', address];
    const isInbound = ({ to }: TrackedConnection) => to.address === address;
    if (open.some(isInbound)) await runSystemProgram('ss', kill);
    if (!open.every(isInbound)) await runSystemProgram('ss', ['-N', netns, ...kill]);
    const left = open.length === 0 ? [] : await this.#open(address);
    return left.some(isInbound) ? this.#knockAt(address, left.filter(isInbound)) : left;
  }

  async #knockAt(address: string, abandoned: readonly TrackedConnection[]): Promise<TrackedConnection[]> {
    const sockets = abandoned.map(knock);
    try {
      return await this.#settled(address);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  }

  async #open(address: string): Promise<TrackedConnection[]> {
    const connections = parseTable(await this.#options.readTable());
    return connections.filter(
      ({ from, to, state }) => (from.address === address || to.address === address) && !OVER.includes(state),
    );
  }

  async #settled(address: string): Promise<TrackedConnection[]> {
    for (let looks = 1; ; looks++) {
      const open = await this.#open(address);
      if (open.length === 0 || looks === LOOKS) return open;
      await this.#options.clock.sleep(LOOK_EVERY_MS);
    }
  }
}

/**
 * For a connection that the host has closed and forgotten, and the sandbox has not: a new connection between the
 * same two ports. The sandbox, which is asked to begin what it has already, answers with where it stands; the
 * host, which knows of nothing, answers that with a reset.
 */
function knock({ from, to }: TrackedConnection) {
  const socket = connect({
    host: to.address,
    port: to.port,
    localAddress: from.address,
    localPort: from.port,
  });
  return socket.on('error', () => {});
}
