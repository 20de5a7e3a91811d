/**
 * How the server reaches the ports of a pod: by the pod's address, or through the API server with one Unix socket on this
 * machine for each port that was dialled. The rest of Torpor reaches a pod in the same way as a local sandbox.
 */
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Address, Clock } from '@torpor/engine';
import { AGENT_PORT } from '@torpor/envd';
import type { Cluster } from './cluster.ts';
import { ForwardsAhead } from './forwards-ahead.ts';
import { forwardPort } from './port-forward.ts';

export interface ReachedPod {
  readonly name: string;
  readonly uid: string;
  readonly ip: string;
}

export interface PodReach {
  to(pod: ReachedPod, port: number): Promise<Address>;
  /** Opens a connection to the agent that the next caller uses. Never fails: the caller's connection does. */
  preconnect(podName: string): void;
  /** Closes what is open to the pod, or to all. */
  close(pod?: ReachedPod): Promise<void>;
}

export const byPodAddress: PodReach = {
  to: async ({ ip }, port) => ({ host: ip, port }),
  preconnect: () => {},
  close: async () => {},
};

interface Relay {
  readonly server: Server;
  readonly socketPath: string;
  readonly connections: Set<Socket>;
}

export class ThroughApiServer implements PodReach {
  readonly #cluster: Cluster;
  readonly #namespace: string;
  readonly #socketDir: string;
  readonly #relays = new Map<string, Promise<Relay>>();
  readonly #ahead: ForwardsAhead;

  constructor(cluster: Cluster, namespace: string, socketDir: string, clock: Clock) {
    this.#cluster = cluster;
    this.#namespace = namespace;
    this.#socketDir = socketDir;
    this.#ahead = new ForwardsAhead(clock, (pod) => forwardPort(cluster, namespace, pod, AGENT_PORT));
  }

  async to(pod: ReachedPod, port: number): Promise<Address> {
    const name = `${pod.uid}-${port}`;
    const known = this.#relays.get(name);
    if (known !== undefined) return { socketPath: (await known).socketPath };
    const opening = this.#open(pod, port);
    this.#relays.set(name, opening);
    // The next call tries again.
    opening.catch(() => this.#relays.delete(name));
    return { socketPath: (await opening).socketPath };
  }

  preconnect(podName: string): void {
    this.#ahead.add(podName);
  }

  async close(pod?: ReachedPod): Promise<void> {
    if (pod === undefined) this.#ahead.closeAll();
    else this.#ahead.close(pod.name);
    for (const [name, opening] of this.#relays) {
      if (pod !== undefined && !name.startsWith(pod.uid)) continue;
      this.#relays.delete(name);
      const relay = await opening.catch(() => undefined);
      relay?.server.close();
      for (const socket of relay?.connections ?? []) socket.destroy();
    }
  }

  async #open(pod: ReachedPod, port: number): Promise<Relay> {
    await mkdir(this.#socketDir, { recursive: true, mode: 0o700 });
    // Short, because the path of a socket has about 100 bytes.
    const socketPath = join(this.#socketDir, `${pod.uid.slice(0, 13)}-${port}.sock`);
    await rm(socketPath, { force: true });
    const connections = new Set<Socket>();
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      connections.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => connections.delete(socket));
      this.#forward(pod.name, port).then(
        (stream) => {
          stream.on('error', () => socket.destroy());
          pipeline(stream, socket).catch(() => stream.destroy());
          pipeline(socket, stream, { end: false }).catch(() => stream.destroy());
          socket.on('close', () => stream.destroy());
        },
        () => socket.destroy(),
      );
    });
    server.listen(socketPath);
    await once(server, 'listening');
    server.unref();
    return { server, socketPath, connections };
  }

  async #forward(podName: string, port: number): Promise<Duplex> {
    const ahead = port === AGENT_PORT ? await this.#ahead.take(podName) : undefined;
    return ahead ?? forwardPort(this.#cluster, this.#namespace, podName, port);
  }
}
