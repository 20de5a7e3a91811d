/** The connections to the agents of running pods. */
import type { Address, Instance } from '@torpor/engine';
import { AGENT_PORT } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { agentClient, notAlive } from './agent-setup.ts';
import { objectName } from './labels.ts';
import type { PodWorld } from './open-pod-world.ts';
import type { ReachedPod } from './pod-reach.ts';
import { podState } from './pod-state.ts';
import { reachedPod } from './pods.ts';
import type { Pod } from './resources.ts';

export interface PodConnection {
  readonly pod: ReachedPod;
  readonly token: string;
}

export class PodConnections {
  readonly #world: PodWorld;
  readonly #known = new Map<string, PodConnection>();

  constructor(world: PodWorld) {
    this.#world = world;
  }

  /**
   * Throws `unreachable` for an instance whose pod does not run. While the API server does not answer, the pod that was
   * reached last is used: its agent answers only to the token of this start.
   */
  async to(
    instance: Instance,
    find: (signal: AbortSignal) => Promise<Pod | undefined>,
    signal: AbortSignal,
  ): Promise<PodConnection> {
    const key = objectName(instance);
    const known = this.#known.get(key);
    const pod = await find(signal).catch((thrown: unknown) => {
      if (known === undefined || signal.aborted) throw thrown;
      return 'unknown' as const;
    });
    if (pod === 'unknown') return known as PodConnection;
    const reached = requireRunning(instance, pod);
    if (known?.pod.uid === reached.uid) return known;
    const secret = await this.#world.secrets.read(instance, signal);
    if (secret === undefined) throw notAlive(instance, 'the credential of its start does not exist any more');
    const connection = { pod: reached, token: secret.token };
    this.#known.set(key, connection);
    return connection;
  }

  /** Of an instance that was just set up: the first request need not read its credential. */
  remember(instance: Instance, connection: PodConnection): void {
    this.#known.set(objectName(instance), connection);
  }

  agentAddress({ pod }: PodConnection): Promise<Address> {
    return this.#world.reach.to(pod, AGENT_PORT);
  }

  /** Null when no program of the sandbox listens on the port. */
  async dial(connection: PodConnection, port: number, signal: AbortSignal): Promise<Address | null> {
    const agent = agentClient(await this.agentAddress(connection), connection.token);
    try {
      const reached = await agent.forward(port, { signal });
      return reached === null ? null : await this.#world.reach.to(connection.pod, reached);
    } finally {
      agent.close();
    }
  }

  async forget(instance: Instance): Promise<void> {
    const key = objectName(instance);
    const known = this.#known.get(key);
    this.#known.delete(key);
    if (known !== undefined) await this.#world.reach.close(known.pod.uid);
  }
}

function requireRunning(instance: Instance, pod: Pod | undefined): ReachedPod {
  if (pod === undefined) throw notAlive(instance, 'it has no pod');
  const state = podState(pod);
  const reached = state.is === 'running' ? reachedPod(pod) : undefined;
  if (reached !== undefined) return reached;
  if (state.is === 'node lost') {
    throw new TorporError('unreachable', `The sandbox cannot be reached: ${state.why}.`, {
      sandboxId: instance.sandboxId,
    });
  }
  throw notAlive(instance, 'why' in state ? state.why : 'its pod has no address yet');
}
