/**
 * Sandboxes as pods of a Kubernetes cluster, one pod for each start. A pod cannot be paused: nothing of it survives its
 * end. So this runtime declares `pause: none`, and refuses to freeze or capture before anything happens.
 *
 * The cluster is the only record of what exists. The names and labels of pods and Secrets carry sandbox and generation, so
 * that any later server finds them again.
 */
import { randomBytes } from 'node:crypto';
import type {
  Address,
  AgentAddress,
  Captured,
  Instance,
  MemoryVerdict,
  Observation,
  Runtime,
  SealedCheckpoint,
  Started,
  StartSpec,
  TemplateSpec,
} from '@torpor/engine';
import { KeyedMutex } from '@torpor/host';
import {
  capturedImage,
  imageOf,
  instancesOf,
  labelsOf,
  Namespaces,
  notAlive,
  objectName,
  onInstanceEnded,
  type Pod,
  PodConnections,
  type PodSettings,
  type PodWorld,
  type PodWorlds,
  podSpec,
  podState,
  selectorOf,
  setUpAgent,
  templateImage,
} from '@torpor/pods';
import { type Capabilities, type Network, type SandboxId, TorporError } from '@torpor/protocol';
import { refuseRestrictions } from '@torpor/runtime-shared';

/** A create must not be aborted half done: the cluster could make the object after its destruction. */
const NEVER_ABORTED = new AbortController().signal;

export const KUBERNETES_CAPABILITIES: Capabilities = {
  pause: 'none',
  replayable: true,
  fork: false,
  snapshotWhileRunning: false,
  pty: true,
  isolated: true,
  customTemplates: true,
};

/** What the runtime has for each namespace. */
interface Place {
  readonly world: PodWorld;
  readonly connections: PodConnections;
}

export class KubernetesRuntime implements Runtime {
  readonly name = 'kubernetes';
  readonly isShared = true;
  readonly memoryEntries = [];
  readonly defaultMemoryMb: number;
  readonly #worlds: PodWorlds;
  readonly #places: Namespaces<Place>;
  readonly #image: string;
  /** A destroy waits for a start that is under way. */
  readonly #mutex = new KeyedMutex<SandboxId>();

  constructor(worlds: PodWorlds, { memoryMb, image }: PodSettings) {
    this.#worlds = worlds;
    this.#places = new Namespaces(
      worlds.all.map((world) => ({ world, connections: new PodConnections(world) })),
    );
    this.defaultMemoryMb = memoryMb;
    this.#image = image;
  }

  capabilities(): Capabilities {
    return KUBERNETES_CAPABILITIES;
  }

  checkNetwork(network: Network): void {
    refuseRestrictions(this.name, network);
  }

  async setNetwork(_: Instance, network: Network): Promise<void> {
    refuseRestrictions(this.name, network);
  }

  async prepareTemplate(spec: TemplateSpec): Promise<Captured> {
    return capturedImage(templateImage(spec, this.#image));
  }

  async isOutdated(template: SealedCheckpoint): Promise<boolean> {
    return imageOf(template) !== this.#image;
  }

  start(
    instance: Instance,
    from: SealedCheckpoint,
    _: unknown,
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    return this.#mutex.run(instance.sandboxId, () => this.#start(instance, from, spec, signal), signal);
  }

  async #start(
    instance: Instance,
    from: SealedCheckpoint,
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    signal.throwIfAborted();
    const place = this.#places.ofOrg(spec.org);
    this.#places.remember(instance, place);
    const { connections } = place;
    const { pods, secrets, clock, settings } = place.world;
    const token = randomBytes(32).toString('hex');
    const secret = await secrets.make(instance, { token, spec }, NEVER_ABORTED);
    signal.throwIfAborted();
    const made = await pods.create(
      podOf(place.world, instance, from, spec),
      objectName(instance),
      NEVER_ABORTED,
    );
    const { name = '', uid = '' } = made.metadata;
    const owner = { apiVersion: 'v1', kind: 'Pod', name, uid };
    await secrets.giveTo(instance, owner, NEVER_ABORTED);
    const pod = await pods.untilRunning(name, instance, signal);
    const connection = { pod, token: secret.token };
    const address = await connections.agentAddress(connection);
    const check = async () => void (await pods.untilRunning(name, instance, signal));
    const dial = (port: number) => this.dial(instance, port, signal);
    const credential = secret.token;
    await setUpAgent({ instance, secret, credential, address, clock, settings, check, dial }, signal);
    connections.remember(instance, connection);
    return { mode: 'files', lost: ['processes'] };
  }

  async observe(instance: Instance, signal: AbortSignal): Promise<Observation> {
    try {
      const place = await this.#placeOf(instance, signal);
      const pod = await findPod(place, instance, signal);
      if (pod === undefined) return gone('the cluster has no pod of it: the pod was deleted');
      const observation = observed(pod);
      if (observation.is === 'running') place.connections.sawRunning(instance, pod.metadata.uid);
      return observation;
    } catch (thrown) {
      return { is: 'unknown', why: TorporError.from(thrown).message };
    }
  }

  async agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress> {
    const place = await this.#placeOf(instance, signal);
    const connection = await connect(place, instance, signal);
    return { address: await place.connections.agentAddress(connection), token: connection.token };
  }

  async dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null> {
    try {
      const place = await this.#placeOf(instance, signal);
      return await place.connections.dial(await connect(place, instance, signal), port, signal);
    } catch (thrown) {
      const observation = await this.observe(instance, signal);
      if (observation.is === 'gone') return null;
      throw thrown;
    }
  }

  onEnded(listener: (instance: Instance) => void): void {
    onInstanceEnded(this.#worlds, listener);
  }

  async presync(): Promise<void> {}

  async freeze(instance: Instance): Promise<void> {
    throw cannotPause(instance);
  }

  async capture(instance: Instance): Promise<Captured> {
    throw cannotPause(instance);
  }

  async thaw(instance: Instance, _: unknown, signal: AbortSignal): Promise<void> {
    const observation = await this.observe(instance, signal);
    if (observation.is === 'gone') throw notAlive(instance, observation.why);
  }

  async recoverFiles({ sandboxId }: Instance): Promise<Captured> {
    throw new TorporError('checkpoint_missing', 'The files of a pod end with the pod.', { sandboxId });
  }

  destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    return this.#mutex.run(upTo.sandboxId, () => this.#destroy(upTo, signal), signal);
  }

  async #destroy({ sandboxId, generation }: Instance, signal: AbortSignal): Promise<void> {
    for (const { world, connections } of this.#places.all) {
      for (const instance of await instancesIn(world, signal, sandboxId)) {
        if (instance.generation > generation) continue;
        await world.pods.remove(objectName(instance), signal);
        await world.secrets.remove(instance, signal);
        await connections.forget(instance);
        this.#places.forget(instance);
      }
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<Instance> {
    for (const world of this.#worlds.all) yield* await instancesIn(world, signal);
  }

  async checkUsable(): Promise<MemoryVerdict> {
    return { usable: false, why: 'a pod keeps no memory' };
  }

  /** The nodes pull the image; the server does not look into the registry. */
  async verify(): Promise<void> {}

  async discard(): Promise<void> {}

  async close(): Promise<void> {
    await this.#worlds.close();
  }

  #placeOf(instance: Instance, signal: AbortSignal): Promise<Place> {
    return this.#places.of(instance, async (place) => (await findPod(place, instance, signal)) !== undefined);
  }
}

function findPod({ world }: Place, instance: Instance, signal: AbortSignal): Promise<Pod | undefined> {
  return world.pods.find(objectName(instance), signal);
}

function connect(place: Place, instance: Instance, signal: AbortSignal) {
  return place.connections.to(instance, (asking) => findPod(place, instance, asking), signal);
}

/** A Secret without a pod is what a server leaves that dies between the two. */
async function instancesIn(
  { pods, secrets, home }: PodWorld,
  signal: AbortSignal,
  sandboxId?: SandboxId,
): Promise<readonly Instance[]> {
  const selector = selectorOf(home, sandboxId);
  return instancesOf([...(await pods.list(selector, signal)), ...(await secrets.list(selector, signal))]);
}

function observed(pod: Pod): Observation {
  const state = podState(pod);
  if (state.is === 'running') return { is: 'running' };
  // A pod that ends or whose node is silent may still run: nothing is concluded before the cluster says that it is gone.
  return state.is === 'ended' ? gone(state.why) : { is: 'unknown', why: state.why };
}

function gone(why: string): Observation {
  return { is: 'gone', files: false, why };
}

function cannotPause({ sandboxId }: Instance): TorporError {
  return new TorporError('capability_unsupported', 'A pod cannot be paused: nothing of it would survive.', {
    sandboxId,
    hint: 'Choose onIdle "stop" or "keep", or a runtime that keeps files or memory: GET /v1/runtimes.',
  });
}

function podOf(
  { home, podSettings }: PodWorld,
  instance: Instance,
  from: SealedCheckpoint,
  { resources }: StartSpec,
): unknown {
  const image = imageOf(from);
  if (image === undefined) {
    throw new TorporError('checkpoint_corrupt', 'The record of the checkpoint names no image.', {
      checkpointId: from.id,
    });
  }
  const name = objectName(instance);
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: labelsOf(home, instance) },
    spec: podSpec({
      settings: podSettings,
      image,
      resources,
      sandboxId: instance.sandboxId,
      secretName: name,
    }),
  };
}
