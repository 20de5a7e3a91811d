/**
 * The runtime whose pauses keep memory: sandboxes in gVisor, on layers of host files, each in its own network.
 *
 * Every call that changes an instance holds the mutex of its sandbox. After a caller's timeout, its next call therefore
 * waits until the abandoned one has ended.
 */
import { rm } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type {
  Address,
  AgentAddress,
  Captured,
  DiskUsage,
  Egress,
  Instance,
  MemoryVerdict,
  Observation,
  Refusal,
  Runtime,
  SealedCheckpoint,
  Staging,
  Started,
  StartSpec,
  TemplateSpec,
  Warmth,
} from '@torpor/engine';
import { hostMountNamespace, KeyedMutex, refuseMountsBelow } from '@torpor/host';
import { MERGE_THRESHOLD } from '@torpor/layers';
import { type Bytes, policyOf } from '@torpor/network';
import {
  type Capabilities,
  type CheckpointId,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { MemoryPressure } from './caches/memory-pressure.ts';
import {
  captureDeadInstance,
  captureInstance,
  freezeInstance,
  liveInstance,
  presyncInstance,
} from './capture.ts';
import { MEMORY_ENTRIES, needsOf } from './checkpoint-needs.ts';
import { directoryOwnedBy } from './container/container-owner.ts';
import {
  AGENT_PORT,
  type ContainerPaths,
  tearDownContainer,
  unassignedName,
} from './container/container-setup.ts';
import type { ExpectedCheckpoint } from './container/pre-created-containers.ts';
import { agentAnswers, agentAt } from './instance/agent-setup.ts';
import { findInstances, instanceOfContainer } from './instance/instance-discovery.ts';
import { cachedCheckpoint, type InstanceRecord, pathsIn } from './instance/instance-files.ts';
import { hasFiles, removeInstanceLayers, reopenUpper, sharedLayers } from './instance/instance-layers.ts';
import { instanceName } from './instance/instance-names.ts';
import { trustEgress, usesSecrets } from './instance/trust-egress.ts';
import { LayerMerging } from './layer-merging.ts';
import { withDefaults } from './limits/default-limits.ts';
import { endReason } from './limits/end-reason.ts';
import { LimitWatcher } from './limits/limit-watcher.ts';
import { isOutdated, memoryVerdict } from './memory-compatibility.ts';
import type { ContainerState } from './runsc/runsc-container.ts';
import type { RuntimeContext } from './runtime-context.ts';
import { noSuchInstance, type Pools, startInstance } from './start.ts';
import { prepareTemplate } from './template/prepare-template.ts';
import { isAdopted } from './warm/adopt.ts';
import { WarmInstances } from './warm/warm-instances.ts';

export const GVISOR_CAPABILITIES: Capabilities = {
  pause: 'memory',
  replayable: true,
  fork: true,
  // Nothing may write into a sealed layer. After a snapshot, a start of the next generation adopts the instance, whose own
  // upper layer is not sealed, or restores the memory over a new layer.
  snapshotWhileRunning: false,
  pty: true,
  isolated: true,
  customTemplates: true,
};

const neverAborted = new AbortController().signal;

/** A capture of an instance with so many layers waits for their merge. */
const WAIT_THRESHOLD = 2 * MERGE_THRESHOLD;

/** When `#destroyed` has this many entries, it is emptied. */
const MAX_DESTROYED = 10_000;

export class GvisorRuntime implements Runtime {
  readonly name = 'gvisor';
  readonly memoryEntries = MEMORY_ENTRIES;
  readonly defaultMemoryMb = withDefaults({}).memoryMb;
  readonly #ctx: RuntimeContext;
  readonly #pools: Pools;
  readonly #limits: LimitWatcher;
  readonly #merging: LayerMerging;
  readonly #warm: WarmInstances;
  readonly #pressure: MemoryPressure;
  readonly #mutex = new KeyedMutex<SandboxId>();
  /** By container id. No container is named after its instance. */
  readonly #instanceByContainer = new Map<string, Instance>();
  /** The bytes of instances that were destroyed since `takeEgress` was last called. */
  readonly #egressOfDestroyed: Egress[] = [];
  /** The generation up to which this server has destroyed everything of a sandbox. */
  readonly #destroyed = new Map<SandboxId, number>();
  /** By container id: ports that have answered when the instance was started, and were not dialled since. */
  readonly #answered = new Map<string, Set<number>>();
  /** The last capture of a container. Its checkpoint is likely to be started next. */
  readonly #lastCapture = new Map<string, ExpectedCheckpoint>();

  #onEnded: (instance: Instance) => void = () => {};

  constructor(ctx: RuntimeContext, pools: Pools) {
    this.#ctx = ctx;
    ctx.owners.find = (container) => this.#instanceOf(container);
    this.#pools = pools;
    this.#limits = new LimitWatcher(ctx, (instance) => this.#onEnded(instance));
    this.#warm = new WarmInstances(ctx, {
      exclusively: (sandboxId, work) => this.#mutex.run(sandboxId, work),
      destroy: (instance, signal) => this.#destroy(instance, signal),
    });
    this.#pressure = new MemoryPressure(ctx);
    this.#merging = new LayerMerging(ctx, (instance, work) => this.#mutex.run(instance.sandboxId, work));
  }

  /** Takes over the instances that an earlier server has started. */
  async open(): Promise<void> {
    for await (const instance of this.#ctx.files.list()) {
      const record = this.#ctx.files.read(instance);
      if (record === undefined) continue;
      this.#track(instance, record);
      const cached = cachedCheckpoint(record);
      if (cached !== null) this.#warm.recordWarmth(instance.sandboxId, cached, { warm: true });
    }
  }

  capabilities(): Capabilities {
    return GVISOR_CAPABILITIES;
  }

  /** Not the runsc: the program that wrote an image is a part of its replica. */
  fingerprint(): string {
    return this.#ctx.processor;
  }

  prepareTemplate(spec: TemplateSpec, staging: Staging, signal: AbortSignal): Promise<Captured> {
    return prepareTemplate(this.#ctx, spec, staging, signal);
  }

  isOutdated(template: SealedCheckpoint): Promise<boolean> {
    return isOutdated(this.#ctx, template);
  }

  /** New sandboxes use this runsc from now on. Existing ones keep theirs until they start from files. */
  async adoptRunsc(runsc: { readonly program: string; readonly version: string }): Promise<void> {
    await this.#ctx.binaries.adopt(runsc);
    this.#pools.hostResourcePool.refill();
  }

  start(
    instance: Instance,
    from: SealedCheckpoint,
    mode: 'memory' | 'files',
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    return this.#exclusively(instance, signal, async () => {
      const dial = (port: number) => this.dial(instance, port, signal);
      const request = { instance, from, mode, spec, dial };
      if (this.#isDestroyed(instance)) this.#destroyed.delete(instance.sandboxId);
      const { started, record, answered } =
        (await this.#warm.wake(request, signal)) ??
        (await startInstance(this.#ctx, this.#pools, request, signal));
      this.#track(instance, record);
      this.#answered.set(record.container.id, new Set(answered));
      this.#pools.hostResourcePool.refill();
      // A template that was started once is likely to be started again.
      if (spec.fromTemplate === true || needsOf(from).template !== null)
        this.#pools.preCreated.createFor(from, withDefaults(spec.resources), 2);
      return started;
    });
  }

  async observe(instance: Instance): Promise<Observation> {
    const { files, runsc } = this.#ctx;
    try {
      const record = files.read(instance);
      if (record === undefined) {
        const { name } = await containerPathsOf(this.#ctx, instance, undefined);
        const found = await runsc.recordedState(name);
        if (isAlive(found))
          return { is: 'unknown', why: 'its record is damaged, and its processes are running' };
        return { is: 'gone', files: false, why: 'there is no such instance' };
      }
      const state = await runsc.recordedState(record.container.id);
      if (state.is === 'running') return { is: 'running' };
      if (state.is === 'frozen') return { is: 'frozen' };
      const why = await endReason(this.#ctx, instance, record);
      return { is: 'gone', files: await hasFiles(this.#ctx, record), why };
    } catch (thrown) {
      if (!(thrown instanceof Error && 'code' in thrown)) throw thrown;
      return { is: 'unknown', why: `its state cannot be read: ${String(thrown.code)}` };
    }
  }

  async agent(instance: Instance): Promise<AgentAddress> {
    const { record, state } = await liveInstance(this.#ctx, instance);
    if (state === 'frozen') {
      throw new TorporError('transitioning', `Sandbox ${instance.sandboxId} is frozen.`, {
        sandboxId: instance.sandboxId,
      });
    }
    return { address: { host: record.guestAddress, port: AGENT_PORT }, token: record.token };
  }

  async dial(instance: Instance, port: number, signal: AbortSignal): Promise<Address | null> {
    const record = this.#ctx.files.read(instance);
    if (record === undefined || (await this.#ctx.runsc.recordedState(record.container.id)).is !== 'running')
      return null;
    // The first request after a start need not ask the agent again. When the program has ended meanwhile, the caller cannot
    // connect, and dials again.
    if (this.#answered.get(record.container.id)?.delete(port) === true)
      return { host: record.guestAddress, port };
    const agent = agentAt(record.guestAddress, record.token);
    try {
      const reached = await agent.forward(port, { signal });
      return reached === null ? null : { host: record.guestAddress, port: reached };
    } finally {
      agent.close();
    }
  }

  checkNetwork(network: Network): void {
    policyOf(network);
  }

  setNetwork(instance: Instance, network: Network, signal: AbortSignal): Promise<void> {
    return this.#exclusively(instance, signal, async () => {
      const { record } = await liveInstance(this.#ctx, instance);
      // Before the record: after a crash in between, the engine sets the network again.
      if (usesSecrets(network) && !usesSecrets(record.network)) {
        const agent = agentAt(record.guestAddress, record.token);
        await trustEgress(this.#ctx, instance, agent, signal).finally(() => agent.close());
      }
      await this.#ctx.files.write(instance, { ...record, network });
      this.#ctx.network.setPolicy(record.container.id, network);
    });
  }

  onRefusal(listener: (instance: Instance, refusal: Refusal) => void): void {
    this.#ctx.refusals.listener = ({ instance: container, at: _, ...refusal }) => {
      this.#instanceOf(container)
        .then((instance) => {
          if (instance !== undefined) listener(instance, refusal);
        })
        .catch((error: unknown) => this.#ctx.report('a refused connection could not be reported', { error }));
    };
  }

  async diskUsage(instance: Instance): Promise<DiskUsage> {
    const usage = await this.#limits.diskUsage((await liveInstance(this.#ctx, instance)).record);
    if (usage === undefined) throw noSuchInstance(instance);
    return usage;
  }

  takeEgress(): readonly Egress[] {
    const taken = this.#egressOfDestroyed.splice(0);
    for (const [container, instance] of this.#instanceByContainer) {
      const bytes = this.#ctx.network.takeBytes(container);
      if (bytes !== undefined) taken.push({ instance, ...bytes });
    }
    return taken;
  }

  onEnded(listener: (instance: Instance) => void): void {
    this.#onEnded = listener;
  }

  async presync(instance: Instance, signal: AbortSignal): Promise<void> {
    const record = this.#ctx.files.read(instance);
    if (record === undefined) return;
    if (record.lower.length >= WAIT_THRESHOLD) await this.#merging.finish(instance, signal);
    await presyncInstance(this.#ctx, instance, signal);
  }

  freeze(instance: Instance, signal: AbortSignal): Promise<void> {
    return this.#exclusively(instance, signal, () => freezeInstance(this.#ctx, instance, signal));
  }

  capture(
    instance: Instance,
    mode: 'memory' | 'files',
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    return this.#exclusively(instance, signal, async () => {
      const { record, captured, warmth } = await captureInstance(this.#ctx, instance, mode, staging, signal);
      this.#lastCapture.set(record.container.id, { id: staging.checkpointId, ...captured });
      this.#warm.recordWarmth(instance.sandboxId, staging.checkpointId, warmth);
      return captured;
    });
  }

  thaw(instance: Instance, sealed: CheckpointId | null, signal: AbortSignal): Promise<void> {
    return this.#exclusively(instance, signal, async () => {
      const { record, state } = await liveInstance(this.#ctx, instance);
      const { capturedFor } = record;
      if (sealed !== null && capturedFor?.sealed === 'upper' && capturedFor.checkpoint === sealed) {
        throw new TorporError(
          'conflict',
          'The files of the sandbox are sealed: it can only go on from the checkpoint.',
        );
      }
      const { network, runsc, images, cgroups, report } = this.#ctx;
      const { id } = record.container;
      const captured = this.#lastCapture.get(id);
      this.#lastCapture.delete(id);
      // The image counts as memory of the sandbox.
      if (captured !== undefined) await images.evict(captured.id);
      if (state === 'frozen') {
        await reopenUpper(this.#ctx, instance, record);
        await cgroups
          ?.limit(id, withDefaults(record.resources))
          .catch((error: unknown) => report('a sandbox runs without its limits', { ...instance, error }));
      }
      // Also for a running sandbox: an aborted freeze may have left it without its network.
      if ((await network.reopen(id, record.network)) === undefined)
        throw new TorporError('internal', 'The frozen sandbox has lost its network.');
      if (state === 'frozen') return runsc.thaw(record.container, signal);
      await runsc.cancelImage(id);
      if (runsc.mayBeFrozen(id))
        await runsc.settleFreeze(id, await agentAnswers(record, this.#ctx.clock, signal), signal);
    });
  }

  recoverFiles(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured> {
    return this.#exclusively(instance, signal, async () => {
      const record = this.#ctx.files.read(instance);
      if (record === undefined || !(await hasFiles(this.#ctx, record))) {
        throw new TorporError('checkpoint_missing', 'The files of the sandbox are gone.', {
          sandboxId: instance.sandboxId,
        });
      }
      if (isAlive(await this.#ctx.runsc.recordedState(record.container.id))) {
        throw new TorporError('conflict', 'Only the files of a dead instance can be recovered.');
      }
      return captureDeadInstance(this.#ctx, instance, record, staging, signal);
    });
  }

  destroy(upTo: Instance, signal: AbortSignal, keep?: CheckpointId): Promise<void> {
    return this.#exclusively(upTo, signal, async () => {
      if (this.#isDestroyed(upTo) || (keep !== undefined && this.#warm.holds(upTo, keep))) return;
      const { sandboxId } = upTo;
      const found = await this.#ctx.files.generations(sandboxId);
      // `upTo.generation` may have no directory, but host resources that a failed start has left.
      const generations = new Set([...found, upTo.generation]);
      let isKept = false;
      for (const generation of generations) {
        if (generation > upTo.generation) continue;
        const instance = { sandboxId, generation };
        // An instance below the newest generation is no cache: a newer generation may have adopted it.
        const isNewest = generation === found.at(-1);
        const kept = keep !== undefined && isNewest ? await this.#warm.keep(instance, keep) : undefined;
        if (kept === undefined) await this.#destroy(instance, signal);
        else this.#untrackKept(instance, kept);
        isKept ||= kept !== undefined;
      }
      if (isKept) return;
      if (this.#destroyed.size >= MAX_DESTROYED) this.#destroyed.clear();
      this.#destroyed.set(sandboxId, upTo.generation);
    });
  }

  warmth(sandboxId: SandboxId, checkpoint: CheckpointId): Warmth {
    return this.#warm.warmth(sandboxId, checkpoint);
  }

  async *list(): AsyncGenerator<Instance> {
    for await (const instance of findInstances(this.#ctx)) {
      if (this.#warm.hides(instance)) continue;
      // `#destroyed` was wrong: something is left. The next `destroy` must do its work again.
      if (this.#isDestroyed(instance)) this.#destroyed.delete(instance.sandboxId);
      yield instance;
    }
  }

  checkUsable(checkpoint: SealedCheckpoint): Promise<MemoryVerdict> {
    return memoryVerdict(this.#ctx, checkpoint);
  }

  /** All contents lie in the store, which verifies them. */
  async verify(): Promise<void> {}

  /** The store removes the content and the layers. */
  async discard({ id }: SealedCheckpoint): Promise<void> {
    await this.#warm.discard(id);
    await this.releasePrepared(id);
  }

  async releasePrepared(checkpoint: CheckpointId): Promise<void> {
    await this.#pools.preCreated.discard(checkpoint);
    await this.#ctx.images.evict(checkpoint);
  }

  /** Running sandboxes go on. Removes everything that was made in advance, or kept in memory. */
  async close(): Promise<void> {
    const { warmMemory, network, cgroups, files, images, base, readOnlyBinds, mounts, runDir, runsc } =
      this.#ctx;
    const { preCreated, hostResourcePool } = this.#pools;
    await Promise.all([
      this.#limits.close(),
      this.#merging.close(),
      this.#warm.close(),
      this.#pressure.close(),
      preCreated.close(),
      hostResourcePool.close(),
    ]);
    await warmMemory.settled();
    this.#ctx.leaveLayerStore();
    await network.close();
    await cgroups?.close();
    await images.close();
    runsc.close();
    base.close();
    for await (const _ of files.list()) return mounts.leave();
    // Without instances, nothing needs the read-only binds and the mount namespace.
    await readOnlyBinds.unmountAll(neverAborted);
    await mounts.remove(neverAborted);
    refuseMountsBelow(hostMountNamespace, runDir);
    await rm(runDir, { recursive: true, force: true });
  }

  #track(instance: Instance, record: InstanceRecord): void {
    this.#instanceByContainer.set(record.container.id, instance);
    this.#limits.add(instance, record, withDefaults(record.resources));
    if (record.merged === null && record.lower.length >= MERGE_THRESHOLD) this.#merging.begin(instance);
  }

  async #destroy(instance: Instance, signal: AbortSignal): Promise<void> {
    const { files, layerStore } = this.#ctx;
    const record = files.read(instance);
    if (record !== undefined) this.#warm.forgetDestroyed(instance, record);
    // A later generation has adopted the container and the layers; only this record is left of the instance.
    if (record !== undefined && (await isAdopted(this.#ctx, instance, record))) {
      await files.remove(instance);
      return layerStore.release(sharedLayers(record));
    }
    if (record !== undefined) this.#limits.remove(record);
    const containerPaths = await containerPathsOf(this.#ctx, instance, record);
    const { name } = containerPaths;
    const bytes = await tearDownContainer(this.#ctx, containerPaths, signal);
    if (record !== undefined) {
      const isSealed = await removeInstanceLayers(this.#ctx, record);
      await this.#ctx.diskProjects?.prune(instance.sandboxId);
      if (isSealed) this.#preCreateNext(name, record);
    }
    this.#untrack(instance, name, bytes);
    await files.remove(instance);
    // Only now the record does not name the layers any more.
    if (record !== undefined) await layerStore.release(sharedLayers(record));
  }

  #untrackKept(instance: Instance, record: InstanceRecord): void {
    const { id } = record.container;
    this.#limits.remove(record);
    this.#untrack(instance, id, this.#ctx.network.takeBytes(id));
  }

  /** `bytes` are those that were not counted yet. */
  #untrack(instance: Instance, container: string, bytes: Bytes | undefined): void {
    if (bytes !== undefined && bytes.sent + bytes.received > 0)
      this.#egressOfDestroyed.push({ instance, ...bytes });
    this.#lastCapture.delete(container);
    this.#answered.delete(container);
    this.#instanceByContainer.delete(container);
  }

  #isDestroyed({ sandboxId, generation }: Instance): boolean {
    return (this.#destroyed.get(sandboxId) ?? 0) >= generation;
  }

  #preCreateNext(name: string, { resources }: InstanceRecord): void {
    const captured = this.#lastCapture.get(name);
    if (captured !== undefined) this.#pools.preCreated.createFor(captured, withDefaults(resources));
  }

  async #instanceOf(container: string): Promise<Instance | undefined> {
    // An instance that is still starting has a record and is not tracked yet.
    return this.#instanceByContainer.get(container) ?? instanceOfContainer(this.#ctx, container);
  }

  #exclusively<T>({ sandboxId }: Instance, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return this.#mutex.run(sandboxId, work, signal);
  }
}

/** Where the container of an instance is, or would be. */
async function containerPathsOf(
  ctx: RuntimeContext,
  instance: Instance,
  record: InstanceRecord | undefined,
): Promise<ContainerPaths> {
  if (record !== undefined) {
    const { container, rootfs } = record;
    return { name: container.id, bundle: container.bundle, rootfs, directory: dirname(container.bundle) };
  }
  const owned = await directoryOwnedBy(ctx, instance);
  if (owned === undefined)
    return { name: instanceName(ctx.serverTag, instance), ...ctx.files.paths(instance) };
  return { name: unassignedName(ctx.serverTag, basename(owned)), ...pathsIn(owned) };
}

function isAlive({ is }: ContainerState): boolean {
  return is === 'running' || is === 'frozen' || is === 'created';
}
