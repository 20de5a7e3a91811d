/**
 * The runtime that keeps memory: sandboxes in gVisor, on layers of host files, each in a network of its own.
 *
 * Everything that changes an instance takes its turn with the sandbox, so that what a caller gave up on has
 * ended before what it asks for next begins.
 */
import { access, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type {
  Address,
  AgentAddress,
  Captured,
  Egress,
  FreezePurpose,
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
} from '@torpor/engine';
import { hostMountPlace, isMissing, KeyedMutex, refuseMountsBelow } from '@torpor/host';
import { LAYERS_TO_MERGE_FROM } from '@torpor/layers';
import { policyOf } from '@torpor/network';
import {
  type Capabilities,
  type CheckpointId,
  type Network,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import { captureInstance, salvageInstance } from './capture.ts';
import { MEMORY_ENTRIES, needsOf } from './checkpoint-needs.ts';
import { AGENT_PORT, tearDownContainer } from './container/container-setup.ts';
import type { Expected } from './container/warm-pool.ts';
import { openGuestTools } from './guest/guest-tools.ts';
import { agentAt } from './instance/agent-setup.ts';
import type { InstanceRecord } from './instance/instance-files.ts';
import { instanceName, instanceOfName } from './instance/instance-names.ts';
import { LayerMerging } from './layer-merging.ts';
import { withDefaults } from './limits/default-limits.ts';
import { endReason } from './limits/end-reason.ts';
import { LimitWatcher } from './limits/limit-watcher.ts';
import type { ContainerState } from './runsc/runsc.ts';
import type { RuntimeContext } from './runtime-context.ts';
import { noSuchInstance, type Pools, startInstance } from './start.ts';
import { prepareTemplate } from './template/prepare-template.ts';

const CAPABILITIES: Capabilities = {
  pause: 'memory',
  replayable: true,
  fork: true,
  // Nothing may write into a sealed layer, so what goes on does so over a fresh one, from its memory.
  snapshotWhileRunning: false,
  pty: true,
  isolated: true,
  customTemplates: true,
};

/** Of how many sandboxes it is remembered that they were cleared away; past so many it starts over. */
const CLEARED_KEPT = 10_000;

export class GvisorRuntime implements Runtime {
  readonly name = 'gvisor';
  readonly memoryEntries = MEMORY_ENTRIES;
  readonly defaultMemoryMb = withDefaults({}).memoryMb ?? 0;
  readonly #ctx: RuntimeContext;
  readonly #pools: Pools;
  readonly #limits: LimitWatcher;
  readonly #merging: LayerMerging;
  readonly #turns = new KeyedMutex<SandboxId>();
  /** Whose a container is: one that was made ahead is not named after its instance. */
  readonly #owners = new Map<string, Instance>();
  /** Of instances that were destroyed since somebody asked for their bytes. */
  readonly #lastBytes: Egress[] = [];
  /** Up to which generation there is nothing left of a sandbox, because this server has seen to it. */
  readonly #cleared = new Map<SandboxId, number>();
  /** The last capture of an instance: whoever has just gone to sleep is likely to be woken. */
  readonly #captured = new Map<string, Expected>();
  /** Containers that were frozen for a snapshot, after which their sandbox goes on. */
  readonly #goingOn = new Set<string>();

  #tellEnded: (instance: Instance) => void = () => {};

  constructor(ctx: RuntimeContext, pools: Pools) {
    this.#ctx = ctx;
    this.#pools = pools;
    this.#limits = new LimitWatcher(ctx, (instance) => this.#tellEnded(instance));
    this.#merging = new LayerMerging(ctx, (instance, work) => this.#turns.run(instance.sandboxId, work));
  }

  /** Looks after what an earlier server had started. */
  async open(): Promise<void> {
    for await (const instance of this.#ctx.files.list()) {
      const record = this.#ctx.files.read(instance);
      if (record !== undefined) this.#lookAfter(instance, record);
    }
  }

  capabilities(): Capabilities {
    return CAPABILITIES;
  }

  prepareTemplate(order: TemplateSpec, staging: Staging, signal: AbortSignal): Promise<Captured> {
    return prepareTemplate(this.#ctx, order, staging, signal);
  }

  async isOutdated(template: SealedCheckpoint): Promise<boolean> {
    const { binaries, tools, base } = this.#ctx;
    const needs = needsOf(template);
    if (needs.runsc !== binaries.current.digest || needs.tools !== tools.fingerprint) return true;
    return needs.root === 'base' && needs.system !== (await base.current()).fingerprint;
  }

  /** New sandboxes use this runsc from here on; those that exist stay with theirs until they start from files. */
  async adoptRunsc(runsc: { readonly program: string; readonly version: string }): Promise<void> {
    await this.#ctx.binaries.adopt(runsc);
    this.#pools.hostResourcePool.refill();
  }

  start(
    instance: Instance,
    from: SealedCheckpoint,
    use: 'memory' | 'files',
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    return this.#turn(instance, signal, async () => {
      const dial = (port: number) => this.dial(instance, port, signal);
      const order = { instance, from, use, spec, dial };
      if (this.#isCleared(instance)) this.#cleared.delete(instance.sandboxId);
      const { started, record } = await startInstance(this.#ctx, this.#pools, order, signal);
      this.#lookAfter(instance, record);
      this.#pools.hostResourcePool.refill();
      // Whoever starts from a template once does it again.
      if (needsOf(from).template !== null) this.#pools.warmPool.expect(from, 2);
      return started;
    });
  }

  async observe(instance: Instance): Promise<Observation> {
    const { files, runsc } = this.#ctx;
    try {
      const record = files.read(instance);
      if (record === undefined) {
        const found = await runsc.recordedState(instanceName(this.#ctx.tag, instance));
        if (isAlive(found))
          return { is: 'unknown', why: 'its record is damaged, and its processes are running' };
        return { is: 'gone', files: false, why: 'there is no such instance' };
      }
      const state = await runsc.recordedState(record.container.id);
      if (state.is === 'running') return { is: 'running' };
      if (state.is === 'paused') return { is: 'frozen' };
      const why = await endReason(this.#ctx, instance, record);
      return { is: 'gone', files: await this.#hasFiles(record), why };
    } catch (thrown) {
      if (!(thrown instanceof Error && 'code' in thrown)) throw thrown;
      return { is: 'unknown', why: `it cannot be looked at: ${String(thrown.code)}` };
    }
  }

  async agent(instance: Instance): Promise<AgentAddress> {
    const { record, state } = await this.#live(instance);
    if (state === 'paused') {
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
    return this.#turn(instance, signal, async () => {
      const { record } = await this.#live(instance);
      await this.#ctx.files.write(instance, { ...record, network });
      this.#ctx.network.setPolicy(record.container.id, network);
    });
  }

  onRefusal(listener: (instance: Instance, refusal: Refusal) => void): void {
    this.#ctx.refused.tell = ({ instance: container, at: _, ...refusal }) => {
      this.#ownerOf(container)
        .then((instance) => {
          if (instance !== undefined) listener(instance, refusal);
        })
        .catch((error: unknown) => this.#ctx.report('a refusal could not be told', { error }));
    };
  }

  takeEgress(): readonly Egress[] {
    const taken = this.#lastBytes.splice(0);
    for (const [container, instance] of this.#owners) {
      const bytes = this.#ctx.network.takeBytes(container);
      if (bytes !== undefined) taken.push({ instance, ...bytes });
    }
    return taken;
  }

  onEnded(listener: (instance: Instance) => void): void {
    this.#tellEnded = listener;
  }

  async presync(instance: Instance, signal: AbortSignal): Promise<void> {
    const record = this.#ctx.files.read(instance);
    if (record === undefined) return;
    await this.#ctx.layers.presync(record.upper, signal);
  }

  freeze(instance: Instance, signal: AbortSignal, purpose?: FreezePurpose): Promise<void> {
    return this.#turn(instance, signal, async () => {
      const { record } = await this.#live(instance);
      const { network, runsc } = this.#ctx;
      const { id } = record.container;
      if (purpose === 'snapshot') this.#goingOn.add(id);
      else this.#goingOn.delete(id);
      try {
        // While its programs still run, so that they are long over when the image is made.
        await network.reset(id);
        await runsc.pause(record.container, signal);
      } catch (thrown) {
        await network.release(id);
        throw thrown;
      }
    });
  }

  capture(
    instance: Instance,
    mode: 'memory' | 'files',
    staging: Staging,
    signal: AbortSignal,
  ): Promise<Captured> {
    return this.#turn(instance, signal, async () => {
      const { record, state } = await this.#live(instance);
      if (state !== 'paused') throw new TorporError('conflict', 'Only a frozen instance can be captured.');
      const captured = await captureInstance(this.#ctx, instance, record, mode, staging, signal);
      const expected = { id: staging.checkpointId, ...captured };
      this.#captured.set(record.container.id, expected);
      // What it goes on in is made while the rest is written down.
      if (this.#goingOn.has(record.container.id)) this.#pools.warmPool.expect(expected);
      return captured;
    });
  }

  thaw(instance: Instance, sealed: CheckpointId | null, signal: AbortSignal): Promise<void> {
    return this.#turn(instance, signal, async () => {
      const { record, state } = await this.#live(instance);
      if (sealed !== null && record.sealedFor === sealed) {
        throw new TorporError('conflict', 'Its files are sealed: it can only go on from the checkpoint.');
      }
      const { network, runsc, images, cgroups, report } = this.#ctx;
      const { id } = record.container;
      const captured = this.#captured.get(id);
      this.#captured.delete(id);
      if (captured !== undefined) {
        // It would stand on files that are written to again.
        await this.#pools.warmPool.forget(captured.id);
        // Its image counts as memory of the sandbox.
        await images.forget(captured.id);
      }
      if (state === 'paused') {
        await this.#reopen(instance, record);
        await cgroups
          ?.limit(id, withDefaults(record.resources))
          .catch((error: unknown) => report('a sandbox goes on without its limits', { ...instance, error }));
      }
      // Also of one that runs: a freeze that was broken off may have left it without.
      await network.release(id);
      if (state === 'paused') await runsc.resume(record.container, signal);
    });
  }

  recoverFiles(instance: Instance, staging: Staging, signal: AbortSignal): Promise<Captured> {
    return this.#turn(instance, signal, async () => {
      const record = this.#ctx.files.read(instance);
      if (record === undefined || !(await this.#hasFiles(record))) {
        throw new TorporError('checkpoint_missing', 'Nothing of its files is left.', {
          sandboxId: instance.sandboxId,
        });
      }
      if (isAlive(await this.#ctx.runsc.recordedState(record.container.id))) {
        throw new TorporError('conflict', 'Files can be recovered only from an instance that has ended.');
      }
      return salvageInstance(this.#ctx, instance, record, staging, signal);
    });
  }

  destroy(upTo: Instance, signal: AbortSignal): Promise<void> {
    return this.#turn(upTo, signal, async () => {
      if (this.#isCleared(upTo)) return;
      const { sandboxId } = upTo;
      // Its own too, of which there may be something that was never written down.
      const generations = new Set([...(await this.#ctx.files.generations(sandboxId)), upTo.generation]);
      for (const generation of generations) {
        if (generation <= upTo.generation) await this.#destroy({ sandboxId, generation }, signal);
      }
      if (this.#cleared.size >= CLEARED_KEPT) this.#cleared.clear();
      this.#cleared.set(sandboxId, upTo.generation);
    });
  }

  async *list(): AsyncGenerator<Instance> {
    for await (const instance of this.#found()) {
      // Whatever we thought: a destroy has something to do again.
      if (this.#isCleared(instance)) this.#cleared.delete(instance.sandboxId);
      yield instance;
    }
  }

  async inspect(checkpoint: SealedCheckpoint): Promise<MemoryVerdict> {
    const { layers, binaries, processor, base, toolsDir } = this.#ctx;
    const needs = needsOf(checkpoint);
    // Looked at meanwhile.
    const system = needs.root === 'base' ? base.current() : null;
    system?.catch(() => {});
    const looks = needs.layers.map(({ id, nonce }) => layers.inspect(id, nonce));
    await Promise.all(looks).catch((thrown: unknown) => {
      throw thrown instanceof TorporError ? thrown.with({ checkpointId: checkpoint.id }) : thrown;
    });
    if (!checkpoint.parts.memory) return { usable: false, why: 'it has none' };
    const whyNot = binaries.whyNot(needs.runsc);
    if (whyNot !== undefined) return { usable: false, why: whyNot };
    if (needs.processor !== processor) return { usable: false, why: 'it was made on another processor' };
    if (system !== null && (await system).fingerprint !== needs.system) {
      return { usable: false, why: 'the system of this machine has changed since it was made' };
    }
    const tools = await openGuestTools(toolsDir, needs.tools).catch(() => undefined);
    if (tools === undefined) return { usable: false, why: 'the tools that ran in it are no longer kept' };
    return { usable: true };
  }

  async verify(checkpoint: SealedCheckpoint, signal: AbortSignal): Promise<void> {
    for (const { id, owner } of needsOf(checkpoint).layers) {
      // The others are verified with the checkpoints that they belong to.
      if (owner === checkpoint.id) await this.#ctx.layers.verify(id, signal);
    }
  }

  async discard({ id }: SealedCheckpoint): Promise<void> {
    const { owned, layers, images } = this.#ctx;
    await this.#pools.warmPool.forget(id);
    await images.forget(id);
    for (const layer of await owned.of(id)) {
      // What an instance has, for which this checkpoint did not come to be, goes on or goes with the instance.
      if (await this.#isInUse(layer)) continue;
      await layers.remove(layer);
    }
    await owned.forget(id);
  }

  /** Lets running sandboxes run, and forgets about them; everything that was made ahead is taken away. */
  async close(): Promise<void> {
    const { network, cgroups, files, images, base, view, mounts, runDir, runsc } = this.#ctx;
    const { warmPool, hostResourcePool } = this.#pools;
    await Promise.all([
      this.#limits.close(),
      this.#merging.close(),
      warmPool.close(),
      hostResourcePool.close(),
    ]);
    await network.close();
    await cgroups?.close();
    await images.close();
    runsc.close();
    base.close();
    for await (const _ of files.list()) return mounts.leave();
    // Nobody needs what they would see of this machine.
    const unhurried = new AbortController().signal;
    await view.hideAll(unhurried);
    await mounts.end(unhurried);
    refuseMountsBelow(hostMountPlace, runDir);
    await rm(runDir, { recursive: true, force: true });
  }

  #lookAfter(instance: Instance, record: InstanceRecord): void {
    this.#owners.set(record.container.id, instance);
    this.#limits.add(instance, record, withDefaults(record.resources));
    if (record.merged === null && record.lower.length >= LAYERS_TO_MERGE_FROM) this.#merging.begin(instance);
  }

  async #destroy(instance: Instance, signal: AbortSignal): Promise<void> {
    const { files, owned, layers, tag } = this.#ctx;
    const record = files.read(instance);
    if (record !== undefined) this.#limits.remove(record);
    const paths = files.paths(instance);
    const name = record?.container.id ?? instanceName(tag, instance);
    const bundle = record?.container.bundle ?? paths.bundle;
    const remains = { name, bundle, rootfs: record?.rootfs ?? paths.rootfs, directory: dirname(bundle) };
    const bytes = await tearDownContainer(this.#ctx, remains, signal);
    if (bytes.sent + bytes.received > 0) this.#lastBytes.push({ instance, ...bytes });
    if (record !== undefined) {
      const kept = record.sealedFor === null ? [] : await owned.of(record.sealedFor);
      for (const layer of [record.upper, record.merged]) {
        if (layer !== null && !kept.includes(layer)) await layers.remove(layer);
      }
      if (kept.length > 0) this.#prepareWake(name);
    }
    this.#captured.delete(name);
    this.#goingOn.delete(name);
    this.#owners.delete(name);
    await files.remove(instance);
  }

  #isCleared({ sandboxId, generation }: Instance): boolean {
    return (this.#cleared.get(sandboxId) ?? 0) >= generation;
  }

  #prepareWake(name: string): void {
    const captured = this.#captured.get(name);
    if (captured !== undefined) this.#pools.warmPool.expect(captured);
  }

  /** Takes back the seal of a checkpoint that did not come to be. */
  async #reopen(instance: Instance, record: InstanceRecord): Promise<void> {
    const { files, owned, layers } = this.#ctx;
    if (record.sealedFor === null) return;
    await layers.reopen(record.upper);
    await owned.forget(record.sealedFor);
    await files.write(instance, { ...record, sealedFor: null });
  }

  async #live(instance: Instance): Promise<{ record: InstanceRecord; state: 'running' | 'paused' }> {
    const record = this.#ctx.files.read(instance);
    if (record === undefined) throw noSuchInstance(instance);
    const { is } = await this.#ctx.runsc.recordedState(record.container.id);
    if (is !== 'running' && is !== 'paused') throw noSuchInstance(instance);
    return { record, state: is };
  }

  async #ownerOf(container: string): Promise<Instance | undefined> {
    const known = this.#owners.get(container);
    if (known !== undefined) return known;
    // One that is just starting.
    for await (const instance of this.#ctx.files.list()) {
      if (this.#ctx.files.read(instance)?.container.id === container) return instance;
    }
    return undefined;
  }

  async #hasFiles({ upper }: InstanceRecord): Promise<boolean> {
    return access(this.#ctx.layers.path(upper)).then(
      () => true,
      (thrown: unknown) => {
        if (isMissing(thrown)) return false;
        throw thrown;
      },
    );
  }

  async #isInUse(layer: InstanceRecord['upper']): Promise<boolean> {
    for await (const instance of this.#ctx.files.list()) {
      const record = this.#ctx.files.read(instance);
      if (record?.upper === layer || record?.merged === layer) return true;
    }
    return false;
  }

  async *#found(): AsyncGenerator<Instance> {
    const seen = new Set<string>();
    for await (const instance of this.#ctx.files.list()) {
      seen.add(instanceName(this.#ctx.tag, instance));
      yield instance;
    }
    for await (const stray of this.#strays()) if (!seen.has(instanceName(this.#ctx.tag, stray))) yield stray;
  }

  /** Instances of which there is something on the machine, whatever is written down about them. */
  async *#strays(): AsyncGenerator<Instance> {
    const { runsc, network, cgroups, tag } = this.#ctx;
    const names = [await runsc.list(), await network.list(), (await cgroups?.list()) ?? []].flat();
    for (const name of new Set(names)) {
      const instance = instanceOfName(tag, name);
      if (instance !== undefined) yield instance;
    }
  }

  #turn<T>({ sandboxId }: Instance, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return this.#turns.run(sandboxId, work, signal);
  }
}

function isAlive({ is }: ContainerState): boolean {
  return is === 'running' || is === 'paused' || is === 'created';
}
