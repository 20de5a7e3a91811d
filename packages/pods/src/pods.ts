/** The pods of this server's sandboxes: made, read, listed, waited for and deleted. */

import type { Clock, Instance } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { notAlive } from './agent-setup.ts';
import type { Cluster } from './cluster.ts';
import { isAbsent, isConflict } from './cluster-fault.ts';
import type { ObjectWatch } from './object-watch.ts';
import type { ReachedPod } from './pod-reach.ts';
import { podState } from './pod-state.ts';
import type { List, Pod } from './resources.ts';

export interface PodsOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly watch: ObjectWatch<Pod>;
  readonly clock: Clock;
  /** How long a pod may wait for a node, or for an image that cannot be pulled. */
  readonly blockedMs: number;
}

/** The watch tells earlier, if it works. */
const LOOK_EVERY_MS = 1_000;

export class Pods {
  readonly #options: PodsOptions;
  readonly #path: string;

  constructor(options: PodsOptions) {
    this.#options = options;
    this.#path = `/api/v1/namespaces/${options.namespace}/pods`;
  }

  /** Undefined when the API server says that there is none. Throws when it does not say. */
  async find(name: string, signal: AbortSignal): Promise<Pod | undefined> {
    try {
      return await this.#options.cluster.get<Pod>(`${this.#path}/${name}`, { what: 'show the pod', signal });
    } catch (thrown) {
      if (isAbsent(thrown)) return undefined;
      throw thrown;
    }
  }

  async list(selector: string, signal: AbortSignal): Promise<readonly Pod[]> {
    const ask = { what: 'list the pods', query: { labelSelector: selector }, signal };
    return (await this.#options.cluster.get<List<Pod>>(this.#path, ask)).items;
  }

  /** May be repeated for one start: the pod's name has the generation. */
  async create(body: unknown, name: string, signal: AbortSignal): Promise<Pod> {
    try {
      return await this.#options.cluster.create<Pod>(this.#path, { what: 'create the pod', body, signal });
    } catch (thrown) {
      const found = isConflict(thrown) ? await this.find(name, signal) : undefined;
      if (found === undefined) throw thrown;
      return found;
    }
  }

  /** Resolves when the pod runs and has an address. Throws with the words of the cluster when it cannot. */
  async untilRunning(name: string, instance: Instance, signal: AbortSignal): Promise<ReachedPod> {
    const { clock, blockedMs, watch } = this.#options;
    let blockedSince: number | undefined;
    for (;;) {
      const changed = watch.changeOf(name, LOOK_EVERY_MS, signal);
      // Awaited below; a failure in between must not be an unhandled one.
      changed.catch(() => {});
      const pod = await this.find(name, signal);
      const reached = requireStartable(pod, instance);
      if (reached !== undefined) return reached;
      const state = pod === undefined ? undefined : podState(pod);
      if (state?.is === 'blocked') {
        blockedSince ??= clock.monotonic();
        if (state.now || clock.monotonic() - blockedSince > blockedMs) throw blocked(instance, state);
      } else blockedSince = undefined;
      await changed;
    }
  }

  /** Resolves when the API server says that the pod is gone. */
  async remove(name: string, signal: AbortSignal): Promise<void> {
    const { cluster, watch } = this.#options;
    for (let first = true; ; first = false) {
      const changed = watch.changeOf(name, LOOK_EVERY_MS, signal);
      changed.catch(() => {});
      if (first) await this.#requestRemoval(cluster, name, signal);
      if ((await this.find(name, signal)) === undefined) return;
      await changed;
    }
  }

  async #requestRemoval(cluster: Cluster, name: string, signal: AbortSignal): Promise<void> {
    try {
      // Not 0: the object would vanish while the containers may still run.
      const body = { gracePeriodSeconds: 1, propagationPolicy: 'Background' };
      await cluster.remove(`${this.#path}/${name}`, { what: 'delete the pod', body, signal });
    } catch (thrown) {
      if (!isAbsent(thrown)) throw thrown;
    }
  }
}

function blocked(
  { sandboxId }: Instance,
  { why, code }: { why: string; code: TorporError['code'] },
): TorporError {
  return new TorporError(code, `The pod cannot start: ${why}.`, { sandboxId });
}

/** Undefined while the pod starts. */
function requireStartable(pod: Pod | undefined, instance: Instance): ReachedPod | undefined {
  if (pod === undefined) throw notAlive(instance, 'its pod was deleted while it started');
  const state = podState(pod);
  if (state.is === 'ended' || state.is === 'terminating' || state.is === 'node lost') {
    throw notAlive(instance, state.why);
  }
  return state.is === 'running' ? reachedPod(pod) : undefined;
}

/** Undefined when the pod has no address. */
export function reachedPod({ metadata, status }: Pod): ReachedPod | undefined {
  const { name, uid } = metadata;
  const ip = status?.podIP;
  return name === undefined || uid === undefined || ip === undefined ? undefined : { name, uid, ip };
}
