/**
 * Sandboxes as Sandbox resources of kubernetes-sigs/agent-sandbox. A paused sandbox is a suspended Sandbox: the controller
 * has ended its pod and keeps its volume, on which the home directory is. Everything outside the home directory, and all
 * processes, are lost.
 *
 * Deleting a Sandbox deletes its volume. So an object that is a checkpoint, or that a start has taken from a checkpoint, is
 * never deleted by a pause, a repair or a destroy, but only when the checkpoint is discarded.
 */
import type {
  Address,
  AgentAddress,
  Captured,
  Instance,
  MemoryVerdict,
  Observation,
  Runtime,
  SealedCheckpoint,
  Staging,
  Started,
  StartSpec,
  TemplateSpec,
} from '@torpor/engine';
import { KeyedMutex } from '@torpor/host';
import {
  capturedImage,
  imageOf,
  instanceOf,
  instancesOf,
  Namespaces,
  NO_INSTANCE,
  notAlive,
  onInstanceEnded,
  PodConnections,
  type PodSettings,
  type PodWorlds,
  selectorOf,
  templateImage,
} from '@torpor/pods';
import {
  type Capabilities,
  type CheckpointId,
  type CheckpointMode,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { refuseRestrictions } from '@torpor/runtime-shared';
import { capturedSandbox, missing, requireNeeds, type SandboxCheckpoint } from './checkpoint-needs.ts';
import { observeObject } from './observe.ts';
import type { Parts } from './parts.ts';
import {
  CHECKPOINT_LABEL,
  claimNameOf,
  IMAGE_ANNOTATION,
  isWantedSuspended,
  podNameOf,
  type SandboxObject,
  STATE_ANNOTATION,
  stateOf,
} from './sandbox-object.ts';
import { checkpointLabel, SandboxObjects, VOLUME } from './sandbox-objects.ts';
import { continueInstance, isProvedSuspended, startInstance, suspend } from './start.ts';
import { poolBlueprint } from './take-sandbox.ts';
import { WarmPool } from './warm-pool.ts';

export const AGENT_SANDBOX_CAPABILITIES: Capabilities = {
  pause: 'files',
  replayable: false,
  fork: false,
  snapshotWhileRunning: false,
  pty: true,
  isolated: true,
  customTemplates: true,
};

export class AgentSandboxRuntime implements Runtime {
  readonly name = 'agent-sandbox';
  readonly isShared = true;
  readonly memoryEntries = [];
  readonly defaultMemoryMb: number;
  readonly #worlds: PodWorlds;
  readonly #places: Namespaces<Parts>;
  readonly #image: string;
  readonly #mutex = new KeyedMutex<SandboxId>();

  constructor(worlds: PodWorlds, { memoryMb, image }: PodSettings) {
    this.#worlds = worlds;
    this.#places = new Namespaces(
      worlds.all.map((world) => ({
        world,
        objects: new SandboxObjects(world),
        connections: new PodConnections(world),
        pool:
          world.podSettings.warmPool === 0
            ? undefined
            : new WarmPool(world, (secretName) => poolBlueprint(world, secretName)),
      })),
    );
    for (const { pool } of this.#places.all) pool?.begin();
    this.defaultMemoryMb = memoryMb;
    this.#image = image;
  }

  capabilities(): Capabilities {
    return AGENT_SANDBOX_CAPABILITIES;
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

  async start(
    instance: Instance,
    from: SealedCheckpoint,
    mode: CheckpointMode,
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    if (mode === 'memory') throw noMemory(instance);
    const checkpoint = requireNeeds(from);
    const parts =
      checkpoint.is === 'template'
        ? this.#places.ofOrg(spec.org)
        : this.#placeOfCheckpoint(from.id, checkpoint);
    this.#places.remember(instance, parts);
    const start = () => startInstance(parts, instance, from.id, checkpoint, spec, signal);
    await this.#mutex.run(instance.sandboxId, start, signal);
    return { mode: 'files', lost: ['processes'] };
  }

  async observe(instance: Instance, signal: AbortSignal): Promise<Observation> {
    try {
      return await observeObject(await this.#placeOf(instance, signal), instance, signal);
    } catch (thrown) {
      return { is: 'unknown', why: TorporError.from(thrown).message };
    }
  }

  async agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress> {
    const parts = await this.#placeOf(instance, signal);
    const connection = await connect(parts, instance, signal);
    return { address: await parts.connections.agentAddress(connection), token: connection.token };
  }

  async dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null> {
    try {
      const parts = await this.#placeOf(instance, signal);
      return await parts.connections.dial(await connect(parts, instance, signal), port, signal);
    } catch (thrown) {
      const { is } = await this.observe(instance, signal);
      if (is === 'gone' || is === 'frozen') return null;
      throw thrown;
    }
  }

  onEnded(listener: (instance: Instance) => void): void {
    onInstanceEnded(this.#worlds, listener);
  }

  /** The node writes its files back when it takes the volume away from the pod. */
  async presync(): Promise<void> {}

  /** Suspends the Sandbox. Its processes end here: a pause that fails afterwards starts them again from the files. */
  async freeze(instance: Instance, signal: AbortSignal): Promise<void> {
    const parts = await this.#placeOf(instance, signal);
    const object = await requireObject(parts, instance, signal);
    if (stateOf(object) === 'frozen' && isWantedSuspended(object)) {
      return suspend(parts, object, { [STATE_ANNOTATION]: 'frozen' }, signal);
    }
    const observation = await this.observe(instance, signal);
    if (observation.is === 'gone') throw notAlive(instance, observation.why);
    if (observation.is !== 'running') {
      const why = 'why' in observation ? observation.why : observation.is;
      throw new TorporError('unreachable', `The Sandbox cannot be suspended now: ${why}.`, {
        sandboxId: instance.sandboxId,
      });
    }
    // The checkpoint that the instance was started from is used up. The next mark is that of the capture.
    await suspend(parts, object, { [STATE_ANNOTATION]: 'frozen' }, signal, {
      [CHECKPOINT_LABEL]: null,
    });
    await parts.connections.forget(instance);
  }

  async capture(
    instance: Instance,
    mode: CheckpointMode,
    { checkpointId }: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    signal.throwIfAborted();
    if (mode === 'memory') throw noMemory(instance);
    const parts = await this.#placeOf(instance, signal);
    const object = await requireObject(parts, instance, signal);
    if (stateOf(object) !== 'frozen' || !(await isProvedSuspended(parts, object, signal))) {
      throw new TorporError('conflict', 'Only a suspended Sandbox can be captured.');
    }
    return claimFor(parts, checkpointId, object, signal);
  }

  async thaw(instance: Instance, _: CheckpointId | null, signal: AbortSignal): Promise<void> {
    const parts = await this.#placeOf(instance, signal);
    const object = await requireObject(parts, instance, signal);
    if (stateOf(object) !== 'frozen') {
      const observation = await this.observe(instance, signal);
      if (observation.is === 'gone') throw notAlive(instance, observation.why);
      return;
    }
    await this.#mutex.run(
      instance.sandboxId,
      () => continueInstance(parts, instance, object, signal),
      signal,
    );
  }

  /** A Sandbox whose pod has ended becomes the checkpoint, with what is on its volume. */
  async recoverFiles(instance: Instance, { checkpointId }: Staging, signal: AbortSignal): Promise<Captured> {
    const parts = await this.#placeOf(instance, signal);
    const object = await parts.objects.find(instance, signal);
    if (object === undefined) throw missing(checkpointId, 'its Sandbox was deleted');
    await suspend(parts, object, { [STATE_ANNOTATION]: 'frozen' }, signal);
    return claimFor(parts, checkpointId, object, signal);
  }

  destroy(upTo: Instance, signal: AbortSignal, keep?: CheckpointId): Promise<void> {
    return this.#mutex.run(upTo.sandboxId, () => this.#destroy(upTo, signal, keep), signal);
  }

  async #destroy(
    { sandboxId, generation }: Instance,
    signal: AbortSignal,
    keep: CheckpointId | undefined,
  ): Promise<void> {
    for (const parts of this.#places.all) {
      const { objects, connections, world, pool } = parts;
      // First, or the controller would give them other Sandboxes.
      for (const { metadata } of (await pool?.claims(signal, sandboxId)) ?? []) {
        const instance = instanceOf(metadata);
        if (instance === undefined || instance.generation > generation) continue;
        await pool?.beginRemoval(instance, signal);
        await pool?.endRemoval(instance, signal);
      }
      for (const object of await objects.ofSandbox(sandboxId, signal)) {
        const instance = instanceOf(object.metadata);
        if (instance === undefined || instance.generation > generation) continue;
        await connections.forget(instance);
        await release(parts, object, keep, signal);
        this.#places.forget(instance);
      }
      for (const { metadata } of await world.secrets.list(selectorOf(world.home, sandboxId), signal)) {
        const instance = instanceOf(metadata);
        if (instance === undefined || instance.generation > generation) continue;
        await world.secrets.remove(instance, signal);
      }
    }
  }

  async *list(signal: AbortSignal): AsyncGenerator<Instance> {
    for (const parts of this.#places.all) yield* await instancesIn(parts, signal);
  }

  async checkUsable(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<MemoryVerdict> {
    const needs = requireNeeds(checkpoint);
    if (needs.is === 'suspended')
      await requireCheckpoint(this.#placeOfCheckpoint(checkpoint.id, needs), checkpoint.id, needs, signal);
    return { usable: false, why: 'a suspended Sandbox keeps no memory' };
  }

  async verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    await this.checkUsable(checkpoint, signal);
  }

  /** An object that an instance runs on loses only the mark: the instance has gone on with the volume. */
  async discard(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    const needs = requireNeeds(checkpoint);
    if (needs.is === 'template') return;
    const { objects } = this.#placeOfCheckpoint(checkpoint.id, needs);
    const object = await objects.findByCheckpoint(checkpoint.id, signal);
    if (object === undefined) return;
    const { name = '' } = object.metadata;
    if (instanceOf(object.metadata) === undefined) return objects.remove(name, signal);
    await objects.change(name, { metadata: { labels: { [CHECKPOINT_LABEL]: null } } }, signal);
  }

  async close(): Promise<void> {
    for (const { pool } of this.#places.all) await pool?.stop();
    await this.#worlds.close();
  }

  #placeOf(instance: Instance, signal: AbortSignal): Promise<Parts> {
    return this.#places.of(
      instance,
      async ({ objects }) => (await objects.find(instance, signal)) !== undefined,
    );
  }

  #placeOfCheckpoint(
    checkpointId: CheckpointId,
    { namespace }: Extract<SandboxCheckpoint, { is: 'suspended' }>,
  ): Parts {
    const [first] = this.#places.all;
    const place = namespace === undefined ? first : this.#places.named(namespace);
    if (place !== undefined) return place;
    throw new TorporError(
      'checkpoint_unreadable',
      `The checkpoint is in the namespace "${namespace}", which the settings do not name.`,
      { checkpointId, hint: 'Name it in TORPOR_KUBERNETES_ORG_NAMESPACES again.' },
    );
  }
}

async function requireObject(
  { objects }: Parts,
  instance: Instance,
  signal: AbortSignal,
): Promise<SandboxObject> {
  const object = await objects.find(instance, signal);
  if (object === undefined) throw notAlive(instance, 'it has no Sandbox');
  return object;
}

function connect(parts: Parts, instance: Instance, signal: AbortSignal) {
  const find = async (asking: AbortSignal) => {
    const object = await requireObject(parts, instance, asking);
    if (stateOf(object) === 'frozen') {
      throw new TorporError('transitioning', 'The sandbox is being paused.', {
        sandboxId: instance.sandboxId,
      });
    }
    return parts.world.pods.find(podNameOf(object), asking);
  };
  return parts.connections.to(instance, find, signal);
}

/** A Secret or a claim without a Sandbox is what a server leaves that dies between the two. */
async function instancesIn(
  { world, objects, pool }: Parts,
  signal: AbortSignal,
): Promise<readonly Instance[]> {
  const selector = selectorOf(world.home);
  return instancesOf([
    ...(await objects.list(selector, signal)),
    ...(await world.secrets.list(selector, signal)),
    ...((await pool?.claims(signal)) ?? []),
  ]);
}

/** Marks the object as the checkpoint, once its volume is proved to exist. */
async function claimFor(
  { world, objects }: Parts,
  checkpointId: CheckpointId,
  object: SandboxObject,
  signal: AbortSignal,
): Promise<Captured> {
  const { name = '', uid = '', annotations = {} } = object.metadata;
  if (!(await objects.hasVolume(claimNameOf(object, VOLUME), signal))) {
    throw missing(checkpointId, 'the volume of the Sandbox does not exist');
  }
  const labels = { [CHECKPOINT_LABEL]: checkpointLabel(checkpointId) };
  await objects.change(name, { metadata: { labels } }, signal);
  return capturedSandbox(world.podSettings.namespace, name, uid, annotations[IMAGE_ANNOTATION] ?? '');
}

/**
 * Takes the instance off the object. An object that a checkpoint names is kept, suspended. The checkpoint that a running
 * instance was started from is used up, and the engine discards it no more: the object is removed with the instance, unless the
 * engine is about to start from that checkpoint again, because the engine does not know that the start succeeded.
 */
async function release(
  parts: Parts,
  object: SandboxObject,
  keep: CheckpointId | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { name = '', labels = {} } = object.metadata;
  const isUsedUp = stateOf(object) === 'running' && keep === undefined;
  if (labels[CHECKPOINT_LABEL] === undefined || isUsedUp) return parts.objects.remove(name, signal);
  await suspend(parts, object, {}, signal);
  const metadata = { labels: NO_INSTANCE, annotations: { [STATE_ANNOTATION]: null } };
  await parts.objects.change(name, { metadata }, signal);
}

async function requireCheckpoint(
  parts: Parts,
  id: CheckpointId,
  { name, uid }: { readonly name: string; readonly uid: string },
  signal: AbortSignal,
): Promise<void> {
  const why = await whyMissing(parts, name, uid, signal).catch((cause: unknown) => {
    throw new TorporError(
      'checkpoint_unreadable',
      'The cluster does not say whether it has the checkpoint.',
      {
        checkpointId: id,
        cause,
      },
    );
  });
  if (why !== undefined) throw missing(id, why);
}

async function whyMissing(
  { objects }: Parts,
  name: string,
  uid: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const object = await objects.findByName(name, signal);
  if (object === undefined) return 'its Sandbox was deleted';
  if (object.metadata.uid !== uid) return 'another Sandbox has its name now';
  if (object.metadata.deletionTimestamp !== undefined) return 'its Sandbox is being deleted';
  const hasVolume = await objects.hasVolume(claimNameOf(object, VOLUME), signal);
  return hasVolume ? undefined : 'its volume was deleted';
}

function noMemory({ sandboxId }: Instance): TorporError {
  return new TorporError('capability_unsupported', 'A suspended Sandbox keeps files, not memory.', {
    sandboxId,
  });
}
