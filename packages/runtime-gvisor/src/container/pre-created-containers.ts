/**
 * Creates containers before they are needed, for checkpoints that are likely to be started next, so that a start only
 * has to restore the memory. The pool is small and drops containers that are not used for a while. A start waits only for
 * a container that is being created for its own checkpoint.
 */
import { totalmem } from 'node:os';
import type { SealedCheckpoint } from '@torpor/engine';
import type { CheckpointId } from '@torpor/protocol';
import type { Droppable } from '../caches/memory-budget.ts';
import { needsOf } from '../checkpoint-needs.ts';
import { pathsIn } from '../instance/instance-files.ts';
import type { Limits } from '../limits/default-limits.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import {
  type ContainerSetup,
  type ContainerSource,
  newUnassignedPaths,
  setUpContainer,
  tearDownContainer,
} from './container-setup.ts';
import { containerSourceFor } from './container-source.ts';

/** The memory that a pre-created container takes. */
const BYTES_PER_CONTAINER = 25 * 1024 * 1024;
const SHARE_OF_MEMORY = 1 / 64;
/** For one checkpoint and one size of memory. */
const MAX_PER_SIZE = 2;
/** For one checkpoint. Enough for sandboxes of two sizes of memory; more would let one checkpoint fill the pool. */
const MAX_PER_CHECKPOINT = 2 * MAX_PER_SIZE;

/** The default number of pre-created containers, for all checkpoints together. */
export function defaultCount(memory = totalmem()): number {
  return Math.min(16, Math.max(2, Math.floor((memory * SHARE_OF_MEMORY) / BYTES_PER_CONTAINER)));
}

/** The limit that a container is created with: its sentry shows the guest this memory. */
type MemoryLimit = Pick<Limits, 'memoryMb'>;

/** The fields of a checkpoint that the creation of a container needs. The checkpoint may not be sealed yet. */
export type ExpectedCheckpoint = Omit<SealedCheckpoint, 'path'>;

const REMOVE_UNUSED_EVERY_MS = 30_000;

interface PreCreatedContainer extends ContainerSetup, Droppable {
  readonly checkpoint: CheckpointId;
  readonly memoryMb: number;
  readonly directory: string;
  readonly tools: string;
  readonly system: string | null;
  readonly runscDigest: string;
  readonly createdAt: number;
}

export class PreCreatedContainers {
  readonly #ctx: RuntimeContext;
  readonly #size: number;
  readonly #ready: PreCreatedContainer[] = [];
  /** By `keyOf`: at most one container is being created for each checkpoint and memory. The promise never rejects. */
  readonly #creating = new Map<
    string,
    { readonly checkpoint: CheckpointId; readonly ended: Promise<void> }
  >();
  readonly #closing = new AbortController();
  readonly #removingUnused: Promise<void>;

  constructor(ctx: RuntimeContext, size = defaultCount()) {
    this.#ctx = ctx;
    this.#size = size;
    this.#removingUnused = this.#removeUnused();
  }

  /** Gives the caller a container that fits, if there is one or one is being created. The caller owns it afterwards. */
  async take(
    checkpoint: CheckpointId,
    source: ContainerSource,
    { memoryMb }: MemoryLimit,
  ): Promise<ContainerSetup | undefined> {
    const found = this.#takeReady(checkpoint, source, memoryMb);
    const creating = this.#creating.get(keyOf(checkpoint, memoryMb));
    if (found !== undefined || creating === undefined) return found;
    await creating.ended;
    return this.#takeReady(checkpoint, source, memoryMb);
  }

  #takeReady(
    checkpoint: CheckpointId,
    source: ContainerSource,
    memoryMb: number,
  ): ContainerSetup | undefined {
    const system = source.system?.fingerprint ?? null;
    const found = this.#ready.findIndex(
      (container) =>
        container.checkpoint === checkpoint &&
        container.memoryMb === memoryMb &&
        container.tools === source.tools.fingerprint &&
        container.system === system &&
        container.runscDigest === source.binary.digest &&
        container.preparedRestore?.isWaiting === true,
    );
    const [taken] = found < 0 ? [] : this.#ready.splice(found, 1);
    if (taken !== undefined) this.#ctx.warmMemory.remove(taken);
    return taken;
  }

  /** Creates up to `count` containers for a checkpoint that is likely to be started. Returns at once. */
  createFor(checkpoint: ExpectedCheckpoint, limit: MemoryLimit, count = 1): void {
    const { id, parts } = checkpoint;
    const key = keyOf(id, limit.memoryMb);
    if (!parts.memory || this.#closing.signal.aborted || this.#creating.has(key)) return;
    const ready = this.#ready.filter(
      (container) => keyOf(container.checkpoint, container.memoryMb) === key,
    ).length;
    if (ready >= Math.min(count, MAX_PER_SIZE, this.#size)) return;
    const ended = this.#createOne(checkpoint, limit).then(
      () => {
        this.#creating.delete(key);
        if (ready + 1 < count) this.createFor(checkpoint, limit, count);
      },
      (error: unknown) => {
        // No retry: the same error is likely.
        this.#creating.delete(key);
        if (!this.#closing.signal.aborted)
          this.#ctx.report('a container could not be created in advance', { error });
      },
    );
    this.#creating.set(key, { checkpoint: id, ended });
  }

  /** Removes the containers of a checkpoint that cannot be started any more, also one that is being created. */
  async discard(checkpoint: CheckpointId): Promise<void> {
    const creating = () => [...this.#creating.values()].filter((each) => each.checkpoint === checkpoint);
    while (creating().length > 0) await Promise.all(creating().map(({ ended }) => ended));
    const useless = this.#ready.filter((container) => container.checkpoint === checkpoint);
    for (const container of useless) await this.#remove(container);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    const creating = [...this.#creating.values()].map(({ ended }) => ended);
    await Promise.all([this.#removingUnused, ...creating]);
    for (const container of [...this.#ready]) await this.#remove(container);
  }

  async #createOne(checkpoint: ExpectedCheckpoint, limit: MemoryLimit): Promise<void> {
    const created = await this.#create(checkpoint, limit, this.#closing.signal);
    this.#ready.push(created);
    if (!this.#ctx.warmMemory.add(created)) await this.#remove(created);
    const ofCheckpoint = this.#ready.filter((container) => container.checkpoint === checkpoint.id);
    const surplus = [...oldest(ofCheckpoint, MAX_PER_CHECKPOINT), ...oldest(this.#ready, this.#size)];
    for (const container of surplus) await this.#remove(container);
  }

  async #removeUnused(): Promise<void> {
    const { clock, settings } = this.#ctx;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await clock.sleep(Math.min(REMOVE_UNUSED_EVERY_MS, settings.aheadKeepMs), signal).catch(() => {});
      const oldest = clock.now() - settings.aheadKeepMs;
      for (const container of this.#ready.filter(({ createdAt }) => createdAt < oldest))
        await this.#remove(container);
    }
  }

  async #create(
    checkpoint: ExpectedCheckpoint,
    { memoryMb }: MemoryLimit,
    signal: AbortSignal,
  ): Promise<PreCreatedContainer> {
    const { layers, runsc, clock, report } = this.#ctx;
    const { name, directory } = newUnassignedPaths(this.#ctx);
    const source = await containerSourceFor(this.#ctx, needsOf(checkpoint), 'memory');
    const upper = await layers.create();
    const paths = pathsIn(directory);
    try {
      const options = { name, paths, source, upper, hostname: 'sandbox', memoryMb };
      const setup = await setUpContainer(this.#ctx, options, signal);
      await runsc.create(setup.container, signal);
      const preparedRestore = await runsc.prepareRestore(setup.container);
      const created: PreCreatedContainer = {
        ...setup,
        preparedRestore,
        checkpoint: checkpoint.id,
        memoryMb,
        directory,
        tools: source.tools.fingerprint,
        system: source.system?.fingerprint ?? null,
        runscDigest: source.binary.digest,
        createdAt: clock.now(),
        bytes: BYTES_PER_CONTAINER,
        drop: () =>
          this.#remove(created).catch((error: unknown) =>
            report('a pre-created container could not be removed', { error }),
          ),
      };
      return created;
    } catch (thrown) {
      await this.#tearDown({ name, directory }, upper);
      throw thrown;
    }
  }

  async #remove(container: PreCreatedContainer): Promise<void> {
    const at = this.#ready.indexOf(container);
    // A start has taken the container, or another call removes it.
    if (at < 0) return;
    this.#ready.splice(at, 1);
    this.#ctx.warmMemory.remove(container);
    await this.#tearDown({ name: container.container.id, directory: container.directory }, container.upper);
  }

  async #tearDown(
    { name, directory }: { readonly name: string; readonly directory: string },
    upper: ContainerSetup['upper'],
  ): Promise<void> {
    const { bundle, rootfs } = pathsIn(directory);
    const neverAborted = new AbortController().signal;
    await tearDownContainer(this.#ctx, { name, directory, bundle, rootfs }, neverAborted);
    await this.#ctx.layers.remove(upper);
  }
}

function keyOf(checkpoint: CheckpointId, memoryMb: number): string {
  return `${checkpoint}/${memoryMb}`;
}

/** The containers beyond the newest `kept`. */
function oldest(containers: readonly PreCreatedContainer[], kept: number): readonly PreCreatedContainer[] {
  return containers.slice(0, Math.max(0, containers.length - kept));
}
