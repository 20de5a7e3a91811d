/**
 * Frozen instances of paused sandboxes that stay in memory. Each is a cache of one sealed checkpoint: ending it costs only
 * time. docs/architecture.md, "Warm sleep", says what must hold.
 *
 * The caller holds the mutex of the sandbox for `keep` and `wake`. Ending an instance takes that mutex itself.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Instance, Warmth } from '@torpor/engine';
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import type { Droppable } from '../caches/memory-budget.ts';
import { cachedCheckpoint, type InstanceRecord } from '../instance/instance-files.ts';
import { sharedLayers } from '../instance/instance-layers.ts';
import { instanceName } from '../instance/instance-names.ts';
import { withDefaults } from '../limits/default-limits.ts';
import { SentryRefusal } from '../runsc/control-socket.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { type StartedInstance, type StartRequest, setUpRunning } from '../start.ts';
import { adopt, goOn } from './adopt.ts';
import { keptBytes, whyNotWarm } from './warm-bounds.ts';

export interface WarmInstance extends Droppable {
  readonly instance: Instance;
  readonly record: InstanceRecord;
  readonly checkpoint: CheckpointId;
  readonly since: number;
}

const END_UNUSED_EVERY_MS = 30_000;
/** When the reasons of this many sandboxes are known, all of them are forgotten. */
const MAX_KNOWN = 10_000;

/** The runtime that the instances belong to. */
export interface InstanceOwner {
  /** Runs the work under the mutex of the sandbox. */
  readonly exclusively: (sandboxId: SandboxId, work: () => Promise<void>) => Promise<void>;
  /** Removes everything of the instance. The caller holds the mutex of the sandbox. */
  readonly destroy: (instance: Instance, signal: AbortSignal) => Promise<void>;
}

const neverAborted = new AbortController().signal;

export class WarmInstances {
  readonly #ctx: RuntimeContext;
  readonly #owner: InstanceOwner;
  readonly #kept = new Map<SandboxId, WarmInstance>();
  /** Whether the last pause of each sandbox has left it warm, for answers. */
  readonly #warmth = new Map<SandboxId, { readonly checkpoint: CheckpointId; readonly is: Warmth }>();
  /** Names of instances that were adopted, while their old records are being removed. */
  readonly #adopted = new Set<string>();
  readonly #closing = new AbortController();
  readonly #endingUnused: Promise<void>;

  constructor(ctx: RuntimeContext, owner: InstanceOwner) {
    this.#ctx = ctx;
    this.#owner = owner;
    this.#endingUnused = this.#endUnused();
  }

  /** Whether this is the instance that is kept for the checkpoint. */
  holds({ sandboxId, generation }: Instance, checkpoint: CheckpointId): boolean {
    const kept = this.#kept.get(sandboxId);
    return kept?.instance.generation === generation && kept.checkpoint === checkpoint;
  }

  /** Whether the instance is kept, or is only an old record that is being removed. `list` leaves both out. */
  hides(instance: Instance): boolean {
    return this.#has(instance) || this.#adopted.has(instanceName(this.#ctx.serverTag, instance));
  }

  #has({ sandboxId, generation }: Instance): boolean {
    return this.#kept.get(sandboxId)?.instance.generation === generation;
  }

  /** Records whether the instance is in memory for this checkpoint, for later answers. */
  recordWarmth(sandboxId: SandboxId, checkpoint: CheckpointId, is: Warmth): void {
    if (this.#warmth.size >= MAX_KNOWN) this.#warmth.clear();
    this.#warmth.set(sandboxId, { checkpoint, is });
  }

  warmth(sandboxId: SandboxId, checkpoint: CheckpointId): Warmth {
    const known = this.#warmth.get(sandboxId);
    return known?.checkpoint === checkpoint ? known.is : { warm: false, why: null };
  }

  /**
   * Stops the frozen instance and keeps it, if it was captured for this checkpoint. The instance then takes no processor
   * time, has its limits again, and reaches nothing. Returns the record of the kept instance. Undefined when the instance
   * cannot be kept: then `warmth` says why, and the caller destroys the instance.
   */
  async keep(instance: Instance, checkpoint: CheckpointId): Promise<InstanceRecord | undefined> {
    const record = this.#ctx.files.read(instance);
    if (record === undefined || cachedCheckpoint(record) !== checkpoint) return undefined;
    const why = await this.#tryToKeep(instance, record, checkpoint);
    if (why === null) return record;
    this.recordWarmth(instance.sandboxId, checkpoint, { warm: false, why });
    return undefined;
  }

  /** Null when the instance is kept. */
  async #tryToKeep(
    instance: Instance,
    record: InstanceRecord,
    checkpoint: CheckpointId,
  ): Promise<string | null> {
    const { runsc, images, cgroups, network, warmMemory, clock, faults, report } = this.#ctx;
    const { id } = record.container;
    if (this.#closing.signal.aborted) return 'the server was stopped';
    const memoryBytes = await runsc.memoryBytes(id);
    const why = whyNotWarm(this.#ctx, record, memoryBytes);
    if (why !== null) return why;
    if (!(await runsc.stopFrozen(id))) return 'its processes have ended';
    // The image counts as memory of the sandbox, and is not needed as long as the instance is there.
    await images.evict(checkpoint);
    await cgroups
      ?.limit(id, withDefaults(record.resources))
      .catch((error: unknown) => report('a paused sandbox has no limits', { ...instance, error }));
    if ((await network.reopen(id, { mode: 'none' })) === undefined) return 'it has lost its network';
    const bytes = keptBytes(memoryBytes);
    const drop = () => this.#drop(kept, 'its memory was needed');
    const kept: WarmInstance = { instance, record, checkpoint, since: clock.now(), bytes, drop };
    const before = this.#kept.get(instance.sandboxId);
    if (before !== undefined) this.#forget(before);
    // `whyNotWarm` has compared the same bytes with the budget.
    warmMemory.add(kept);
    this.#kept.set(instance.sandboxId, kept);
    this.recordWarmth(instance.sandboxId, checkpoint, { warm: true });
    await faults.pass('runtime.kept');
    return null;
  }

  /**
   * Wakes the instance that is kept for this checkpoint. Undefined when there is none, or it could not be woken: then
   * nothing of it is left, and the caller restores from the checkpoint.
   */
  async wake(request: StartRequest, signal: AbortSignal): Promise<StartedInstance | undefined> {
    const { instance, from, mode, spec } = request;
    const warm = this.#take(instance.sandboxId);
    if (warm === undefined) return undefined;
    // A sentry shows its guest the memory that it was created with.
    const hasSameLimits = isDeepStrictEqual(warm.record.resources, spec.resources);
    if (mode !== 'memory' || warm.checkpoint !== from.id || !hasSameLimits) {
      await this.#owner.destroy(warm.instance, signal);
      return undefined;
    }
    try {
      const adopted = await adopt(this.#ctx, warm, request);
      const setUp = (bound: AbortSignal) => setUpRunning(this.#ctx, request, adopted, bound);
      const { started, answered } = await goOn(this.#ctx, adopted, setUp, signal);
      this.#removeOldRecord(warm);
      return { started: { ...started, adopted: true }, record: adopted.record, answered };
    } catch (thrown) {
      // The engine destroys the instance of an aborted start.
      signal.throwIfAborted();
      if (thrown instanceof SentryRefusal) this.#ctx.cannotContinue.add(warm.record.runsc);
      this.#ctx.report('a paused sandbox in memory could not go on; its checkpoint is restored', {
        ...instance,
        error: thrown,
      });
      for (const ended of [warm.instance, instance]) await this.#owner.destroy(ended, signal);
      return undefined;
    }
  }

  /** Returns at once. The record is removed under the mutex of the sandbox, so the next call for the sandbox waits for it. */
  #removeOldRecord({ instance, record }: WarmInstance): void {
    const { files, layerStore, report, serverTag } = this.#ctx;
    const name = instanceName(serverTag, instance);
    this.#adopted.add(name);
    const remove = async () => {
      await files.remove(instance);
      await layerStore.release(sharedLayers(record));
    };
    this.#owner
      .exclusively(instance.sandboxId, remove)
      .catch((error: unknown) => report('an old record stays', { ...instance, error }))
      .finally(() => this.#adopted.delete(name));
  }

  /** The instance of this sandbox, which may be for another checkpoint. It is not kept any more: the caller owns it. */
  #take(sandboxId: SandboxId): WarmInstance | undefined {
    const kept = this.#kept.get(sandboxId);
    if (kept !== undefined) this.#forget(kept);
    this.#warmth.delete(sandboxId);
    return kept;
  }

  /** Called when the instance is going to be destroyed: the instance is not warm any more, if it was. */
  forgetDestroyed(instance: Instance, record: InstanceRecord): void {
    const { sandboxId } = instance;
    const kept = this.#kept.get(sandboxId);
    if (kept !== undefined && this.#has(instance)) this.#forget(kept);
    const cached = cachedCheckpoint(record);
    if (cached !== null && this.warmth(sandboxId, cached).warm)
      this.recordWarmth(sandboxId, cached, { warm: false, why: null });
  }

  /** Ends the instance that is kept for a checkpoint which is being deleted. */
  async discard(checkpoint: CheckpointId): Promise<void> {
    for (const kept of [...this.#kept.values()])
      if (kept.checkpoint === checkpoint) await this.#drop(kept, 'its checkpoint was deleted');
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#endingUnused;
    await Promise.all([...this.#kept.values()].map((kept) => this.#drop(kept, 'the server was stopped')));
  }

  async #endUnused(): Promise<void> {
    const { clock, settings } = this.#ctx;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await clock
        .sleep(Math.min(END_UNUSED_EVERY_MS, settings.warmKeepMs || END_UNUSED_EVERY_MS), signal)
        .catch(() => {});
      const oldest = clock.now() - settings.warmKeepMs;
      for (const kept of [...this.#kept.values()])
        if (!signal.aborted && kept.since < oldest) await this.#drop(kept, 'it was not used for a while');
    }
  }

  /** Does nothing when the instance was taken meanwhile, also when another one of the sandbox is kept by now. */
  async #drop(kept: WarmInstance, why: string): Promise<void> {
    const { instance, checkpoint } = kept;
    if (this.#kept.get(instance.sandboxId) !== kept) return;
    this.#forget(kept);
    this.recordWarmth(instance.sandboxId, checkpoint, { warm: false, why });
    await this.#end(instance).catch((error: unknown) =>
      this.#ctx.report('a paused sandbox could not be removed from memory', { ...instance, error }),
    );
  }

  /** Something else may have ended or adopted the instance meanwhile. */
  #end(instance: Instance): Promise<void> {
    return this.#owner.exclusively(instance.sandboxId, async () => {
      const record = this.#ctx.files.read(instance);
      if (record !== undefined && cachedCheckpoint(record) !== null)
        await this.#owner.destroy(instance, neverAborted);
    });
  }

  #forget(kept: WarmInstance): void {
    this.#kept.delete(kept.instance.sandboxId);
    this.#ctx.warmMemory.remove(kept);
  }
}
