/**
 * How the server reaches the ports of a pod: by the pod's address, or through the API server with one Unix socket on this
 * machine for each port that was dialled. The rest of Torpor reaches a pod in the same way as a local sandbox.
 */
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Address } from '@torpor/engine';
import type { Cluster } from './cluster.ts';
import { forwardPort } from './port-forward.ts';

export interface ReachedPod {
  readonly name: string;
  readonly uid: string;
  readonly ip: string;
}

export interface PodReach {
  to(pod: ReachedPod, port: number): Promise<Address>;
  /** Closes what is open to the pod, or to all. */
  close(podUid?: string): Promise<void>;
}

export const byPodAddress: PodReach = {
  to: async ({ ip }, port) => ({ host: ip, port }),
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

  constructor(cluster: Cluster, namespace: string, socketDir: string) {
    this.#cluster = cluster;
    this.#namespace = namespace;
    this.#socketDir = socketDir;
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

  async close(podUid?: string): Promise<void> {
    for (const [name, opening] of this.#relays) {
      if (podUid !== undefined && !name.startsWith(podUid)) continue;
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
      forwardPort(this.#cluster, this.#namespace, pod.name, port).then(
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
}
