/**
 * A runtime like a hosted provider: the provider keeps the checkpoints, one per sandbox, and a start consumes the
 * checkpoint. The engine seals only the provider's reference to it. A provider with snapshots can also make checkpoints of
 * a sandbox that runs on; those are not consumed.
 */
import { type CheckpointId, type CheckpointMode, TorporError } from '@torpor/protocol';
import type { Staging } from '../src/ports/checkpoint-store.ts';
import type {
  Captured,
  FreezePurpose,
  Instance,
  MemoryVerdict,
  SealedCheckpoint,
  Started,
  StartSpec,
  TemplateSpec,
} from '../src/ports/runtime.ts';
import { MemoryRuntime } from './memory-runtime.ts';
import { VirtualStore } from './virtual-files.ts';

export class ProviderRuntime extends MemoryRuntime {
  readonly isShared = true;
  readonly #kept: VirtualStore;
  readonly #snapshotted = new Set<string>();

  constructor({ snapshots = false } = {}) {
    const kept = new VirtualStore();
    const capabilities = { replayable: false, fork: snapshots, snapshotWhileRunning: snapshots };
    super({ name: 'provider', files: kept, capabilities });
    this.#kept = kept;
  }

  override async freeze(instance: Instance, _?: AbortSignal, purpose?: FreezePurpose): Promise<void> {
    await super.freeze(instance);
    if (purpose === 'snapshot') this.#snapshotted.add(nameOf(instance));
    else this.#snapshotted.delete(nameOf(instance));
  }

  override async prepareTemplate(spec: TemplateSpec, staging: Staging): Promise<Captured> {
    const captured = await super.prepareTemplate(spec, await this.#stage(staging));
    return this.#external({ ...captured, needs: { ...captured.needs, template: true } }, staging, true);
  }

  override async capture(instance: Instance, mode: CheckpointMode, staging: Staging): Promise<Captured> {
    const captured = await super.capture(instance, mode, await this.#stage(staging));
    return this.#external(captured, staging, this.#snapshotted.has(nameOf(instance)));
  }

  override async recoverFiles(instance: Instance, staging: Staging): Promise<Captured> {
    return this.#external(await super.recoverFiles(instance, await this.#stage(staging)), staging, false);
  }

  override async start(
    instance: Instance,
    from: SealedCheckpoint,
    mode: CheckpointMode,
    spec: StartSpec,
    signal: AbortSignal,
  ): Promise<Started> {
    const started = await super.start(instance, this.#here(from), mode, spec, signal);
    if (from.needs['replayable'] === false) await this.#kept.remove(from.id);
    return started;
  }

  override async checkUsable(checkpoint: SealedCheckpoint): Promise<MemoryVerdict> {
    return super.checkUsable(this.#here(checkpoint));
  }

  override async verify(checkpoint: SealedCheckpoint): Promise<void> {
    await super.verify(this.#here(checkpoint));
  }

  override async discard(checkpoint?: SealedCheckpoint): Promise<void> {
    if (checkpoint !== undefined && checkpoint.needs['template'] !== true)
      await this.#kept.remove(checkpoint.id);
  }

  /** The provider loses a checkpoint. */
  lose(id: CheckpointId): Promise<void> {
    return this.#kept.remove(id);
  }

  #stage(staging: Staging): Promise<Staging> {
    return this.#kept.stage(staging.checkpointId);
  }

  #here(checkpoint: SealedCheckpoint): SealedCheckpoint {
    if (checkpoint.path !== null) throw new TorporError('internal', 'A provider has no path.');
    return { ...checkpoint, path: this.#kept.path(checkpoint.id) };
  }

  #external(captured: Captured, staging: Staging, replayable: boolean): Captured {
    const location = `provider:${staging.checkpointId}`;
    return {
      ...captured,
      needs: { ...captured.needs, replayable },
      external: { location, bytes: null, replayable },
    };
  }
}

function nameOf({ sandboxId, generation }: Instance): string {
  return `${sandboxId}/${generation}`;
}
