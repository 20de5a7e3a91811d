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

/** A pod that was seen to run is not looked at again for so long, unless the watch tells that it does not run any more. */
const SEEN_MS = 1_000;

export class PodConnections {
  readonly #world: PodWorld;
  readonly #known = new Map<string, PodConnection>();
  /** When the known pods were last seen to run, by their uids. */
  readonly #seen = new Map<string, number>();

  constructor(world: PodWorld) {
    this.#world = world;
    world.watch.onChange((pod, isDeleted) => {
      if (isDeleted || podState(pod).is !== 'running') this.#seen.delete(pod.metadata.uid ?? '');
    });
  }

  /**
   * Throws `unreachable` for an instance whose pod does not run. While the API server does not answer, the pod that was
   * reached last is used: its agent answers only to the token of this start. For the same reason a command that follows a
   * start or an observation at once does not look at the pod again.
   */
  async to(
    instance: Instance,
    find: (signal: AbortSignal) => Promise<Pod | undefined>,
    signal: AbortSignal,
  ): Promise<PodConnection> {
    const key = objectName(instance);
    const known = this.#known.get(key);
    if (known !== undefined && this.#isJustSeen(known.pod)) return known;
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

  /** Of an instance that was just set up: a command mostly follows, and need not wait for what is known already. */
  remember(instance: Instance, connection: PodConnection): void {
    this.#known.set(objectName(instance), connection);
    this.sawRunning(instance, connection.pod.uid);
    this.#world.reach.preconnect(connection.pod.name);
  }

  /** After an observation. Pods that were never reached are of no interest. */
  sawRunning(instance: Instance, podUid: string | undefined): void {
    const known = this.#known.get(objectName(instance));
    if (known !== undefined && known.pod.uid === podUid)
      this.#seen.set(known.pod.uid, this.#world.clock.monotonic());
  }

  /** The pod that an instance was reached in last. */
  lastPodOf(instance: Instance): ReachedPod | undefined {
    return this.#known.get(objectName(instance))?.pod;
  }

  /** For a pod of the cluster whose agent is about to be asked. */
  preconnect(podName: string): void {
    this.#world.reach.preconnect(podName);
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
    if (known === undefined) return;
    this.#seen.delete(known.pod.uid);
    await this.#world.reach.close(known.pod);
  }

  #isJustSeen({ uid }: ReachedPod): boolean {
    const seenAt = this.#seen.get(uid);
    return seenAt !== undefined && this.#world.clock.monotonic() - seenAt < SEEN_MS;
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
