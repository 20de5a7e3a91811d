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
  NO_INSTANCE,
  notAlive,
  objectName,
  PodConnections,
  type PodWorld,
  podState,
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
import { capturedSandbox, missing, requireNeeds } from './checkpoint-needs.ts';
import { observeObject } from './observe.ts';
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
  readonly #world: PodWorld;
  readonly #objects: SandboxObjects;
  readonly #connections: PodConnections;
  readonly #mutex = new KeyedMutex<SandboxId>();

  constructor(world: PodWorld) {
    this.#world = world;
    this.#objects = new SandboxObjects(world);
    this.#connections = new PodConnections(world);
    this.defaultMemoryMb = world.podSettings.memoryMb;
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
    return capturedImage(templateImage(spec, this.#world.podSettings.image));
  }

  async isOutdated(template: SealedCheckpoint): Promise<boolean> {
    return imageOf(template) !== this.#world.podSettings.image;
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
    const start = () => startInstance(this.#parts(), instance, from.id, checkpoint, spec, signal);
    await this.#mutex.run(instance.sandboxId, start, signal);
    return { mode: 'files', lost: ['processes'] };
  }

  async observe(instance: Instance, signal: AbortSignal): Promise<Observation> {
    try {
      return await observeObject(this.#parts(), instance, signal);
    } catch (thrown) {
      return { is: 'unknown', why: TorporError.from(thrown).message };
    }
  }

  async agent(instance: Instance, signal: AbortSignal): Promise<AgentAddress> {
    const connection = await this.#connect(instance, signal);
    return { address: await this.#connections.agentAddress(connection), token: connection.token };
  }

  async dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null> {
    try {
      return await this.#connections.dial(await this.#connect(instance, signal), port, signal);
    } catch (thrown) {
      const { is } = await this.observe(instance, signal);
      if (is === 'gone' || is === 'frozen') return null;
      throw thrown;
    }
  }

  onEnded(listener: (instance: Instance) => void): void {
    this.#world.watch.onChange((pod, isDeleted) => {
      const instance = instanceOf(pod.metadata);
      if (instance !== undefined && (isDeleted || podState(pod).is === 'ended')) listener(instance);
    });
  }

  /** The node writes its files back when it takes the volume away from the pod. */
  async presync(): Promise<void> {}

  /** Suspends the Sandbox. Its processes end here: a pause that fails afterwards starts them again from the files. */
  async freeze(instance: Instance, signal: AbortSignal): Promise<void> {
    const object = await this.#require(instance, signal);
    if (stateOf(object) === 'frozen' && isWantedSuspended(object)) {
      return suspend(this.#parts(), object, { [STATE_ANNOTATION]: 'frozen' }, signal);
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
    await suspend(this.#parts(), object, { [STATE_ANNOTATION]: 'frozen' }, signal, {
      [CHECKPOINT_LABEL]: null,
    });
    await this.#connections.forget(instance);
  }

  async capture(
    instance: Instance,
    mode: CheckpointMode,
    { checkpointId }: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    signal.throwIfAborted();
    if (mode === 'memory') throw noMemory(instance);
    const object = await this.#require(instance, signal);
    if (stateOf(object) !== 'frozen' || !(await isProvedSuspended(this.#parts(), object, signal))) {
      throw new TorporError('conflict', 'Only a suspended Sandbox can be captured.');
    }
    return this.#claimFor(checkpointId, object, signal);
  }

  /** Marks the object as the checkpoint, once its volume is proved to exist. */
  async #claimFor(checkpointId: CheckpointId, object: SandboxObject, signal: AbortSignal): Promise<Captured> {
    const { name = '', uid = '', annotations = {} } = object.metadata;
    if (!(await this.#objects.hasVolume(claimNameOf(object, VOLUME), signal))) {
      throw missing(checkpointId, 'the volume of the Sandbox does not exist');
    }
    const labels = { [CHECKPOINT_LABEL]: checkpointLabel(checkpointId) };
    await this.#objects.change(name, { metadata: { labels } }, signal);
    const { namespace } = this.#world.podSettings;
    return capturedSandbox(namespace, name, uid, annotations[IMAGE_ANNOTATION] ?? '');
  }

  async thaw(instance: Instance, _: CheckpointId | null, signal: AbortSignal): Promise<void> {
    const object = await this.#objects.find(instance, signal);
    if (object === undefined) throw notAlive(instance, 'it has no Sandbox');
    if (stateOf(object) !== 'frozen') {
      const observation = await this.observe(instance, signal);
      if (observation.is === 'gone') throw notAlive(instance, observation.why);
      return;
    }
    await this.#mutex.run(
      instance.sandboxId,
      () => continueInstance(this.#parts(), instance, object, signal),
      signal,
    );
  }

  /** A Sandbox whose pod has ended becomes the checkpoint, with what is on its volume. */
  async recoverFiles(instance: Instance, { checkpointId }: Staging, signal: AbortSignal): Promise<Captured> {
    const object = await this.#objects.find(instance, signal);
    if (object === undefined) throw missing(checkpointId, 'its Sandbox was deleted');
    await suspend(this.#parts(), object, { [STATE_ANNOTATION]: 'frozen' }, signal);
    return this.#claimFor(checkpointId, object, signal);
  }

  destroy(upTo: Instance, signal: AbortSignal, keep?: CheckpointId): Promise<void> {
    return this.#mutex.run(upTo.sandboxId, () => this.#destroy(upTo, signal, keep), signal);
  }

  async #destroy(
    { sandboxId, generation }: Instance,
    signal: AbortSignal,
    keep: CheckpointId | undefined,
  ): Promise<void> {
    const { secrets, home } = this.#world;
    for (const object of await this.#objects.ofSandbox(sandboxId, signal)) {
      const instance = instanceOf(object.metadata);
      if (instance === undefined || instance.generation > generation) continue;
      await this.#connections.forget(instance);
      await this.#release(object, keep, signal);
    }
    for (const { metadata } of await secrets.list(selectorOf(home, sandboxId), signal)) {
      const instance = instanceOf(metadata);
      if (instance !== undefined && instance.generation <= generation) await secrets.remove(instance, signal);
    }
  }

  /**
   * Takes the instance off the object. An object that a checkpoint names is kept, suspended. The checkpoint that a running
   * instance was started from is used up, and the engine discards it no more: the object is removed with the instance, unless the
   * engine is about to start from that checkpoint again, because the engine does not know that the start succeeded.
   */
  async #release(object: SandboxObject, keep: CheckpointId | undefined, signal: AbortSignal): Promise<void> {
    const { name = '', labels = {} } = object.metadata;
    const isUsedUp = stateOf(object) === 'running' && keep === undefined;
    if (labels[CHECKPOINT_LABEL] === undefined || isUsedUp) return this.#objects.remove(name, signal);
    await suspend(this.#parts(), object, {}, signal);
    const metadata = { labels: NO_INSTANCE, annotations: { [STATE_ANNOTATION]: null } };
    await this.#objects.change(name, { metadata }, signal);
  }

  async *list(signal: AbortSignal): AsyncGenerator<Instance> {
    const { secrets, home } = this.#world;
    const selector = selectorOf(home);
    const objects = [
      ...(await this.#objects.list(selector, signal)),
      ...(await secrets.list(selector, signal)),
    ];
    const seen = new Set<string>();
    for (const { metadata } of objects) {
      const instance = instanceOf(metadata);
      if (instance === undefined || seen.has(objectName(instance))) continue;
      seen.add(objectName(instance));
      yield instance;
    }
  }

  async checkUsable(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<MemoryVerdict> {
    const needs = requireNeeds(checkpoint);
    if (needs.is === 'suspended') await this.#requireCheckpoint(checkpoint.id, needs, signal);
    return { usable: false, why: 'a suspended Sandbox keeps no memory' };
  }

  async #requireCheckpoint(
    id: CheckpointId,
    { name, uid }: { readonly name: string; readonly uid: string },
    signal: AbortSignal,
  ): Promise<void> {
    const why = await this.#whyMissing(name, uid, signal).catch((cause: unknown) => {
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

  async #whyMissing(name: string, uid: string, signal: AbortSignal): Promise<string | undefined> {
    const object = await this.#objects.findByName(name, signal);
    if (object === undefined) return 'its Sandbox was deleted';
    if (object.metadata.uid !== uid) return 'another Sandbox has its name now';
    if (object.metadata.deletionTimestamp !== undefined) return 'its Sandbox is being deleted';
    const hasVolume = await this.#objects.hasVolume(claimNameOf(object, VOLUME), signal);
    return hasVolume ? undefined : 'its volume was deleted';
  }

  async verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    await this.checkUsable(checkpoint, signal);
  }

  /** An object that an instance runs on loses only the mark: the instance has gone on with the volume. */
  async discard(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    const object = await this.#objects.findByCheckpoint(checkpoint.id, signal);
    if (object === undefined) return;
    const { name = '' } = object.metadata;
    if (instanceOf(object.metadata) === undefined) return this.#objects.remove(name, signal);
    await this.#objects.change(name, { metadata: { labels: { [CHECKPOINT_LABEL]: null } } }, signal);
  }

  async close(): Promise<void> {
    await this.#world.close();
  }

  #parts() {
    return { world: this.#world, objects: this.#objects, connections: this.#connections };
  }

  async #require(instance: Instance, signal: AbortSignal): Promise<SandboxObject> {
    const object = await this.#objects.find(instance, signal);
    if (object === undefined) throw notAlive(instance, 'it has no Sandbox');
    return object;
  }

  #connect(instance: Instance, signal: AbortSignal) {
    const find = async (asking: AbortSignal) => {
      const object = await this.#require(instance, asking);
      if (stateOf(object) === 'frozen') {
        throw new TorporError('transitioning', 'The sandbox is being paused.', {
          sandboxId: instance.sandboxId,
        });
      }
      return this.#world.pods.find(podNameOf(object), asking);
    };
    return this.#connections.to(instance, find, signal);
  }
}

function noMemory({ sandboxId }: Instance): TorporError {
  return new TorporError('capability_unsupported', 'A suspended Sandbox keeps files, not memory.', {
    sandboxId,
  });
}
