/**
 * Creates containers before they are needed, for checkpoints that are likely to be started next, so that a start only
 * has to restore the memory. The pool is small, drops containers that are not used for a while, and never delays a caller.
 */
import { totalmem } from 'node:os';
import type { SealedCheckpoint } from '@torpor/engine';
import type { CheckpointId } from '@torpor/protocol';
import { needsOf } from '../checkpoint-needs.ts';
import { pathsIn } from '../instance/instance-files.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import {
  type ContainerSetup,
  type ContainerSource,
  newUnassignedPaths,
  setUpContainer,
  tearDownContainer,
} from './container-setup.ts';
import { containerSourceFor } from './container-source.ts';

/** The memory of a container that waits. */
const BYTES_PER_CONTAINER = 25 * 1024 * 1024;
const SHARE_OF_MEMORY = 1 / 64;
const MAX_PER_CHECKPOINT = 2;

/** The default number of pre-created containers, for all checkpoints together. */
export function warmPoolSize(memory = totalmem()): number {
  return Math.min(16, Math.max(2, Math.floor((memory * SHARE_OF_MEMORY) / BYTES_PER_CONTAINER)));
}

/** The fields of a checkpoint that the creation of a container needs. The checkpoint may not be sealed yet. */
export type ExpectedCheckpoint = Omit<SealedCheckpoint, 'path'>;

const REMOVE_UNUSED_EVERY_MS = 30_000;

interface PreCreatedContainer extends ContainerSetup {
  readonly checkpoint: CheckpointId;
  readonly directory: string;
  readonly tools: string;
  readonly system: string | null;
  readonly runscDigest: string;
  readonly createdAt: number;
}

export class WarmPool {
  readonly #ctx: RuntimeContext;
  readonly #size: number;
  readonly #ready: PreCreatedContainer[] = [];
  /** At most one container is being created for each checkpoint. The promise never rejects. */
  readonly #creating = new Map<CheckpointId, Promise<void>>();
  readonly #closing = new AbortController();
  readonly #removingUnused: Promise<void>;

  constructor(ctx: RuntimeContext, size = warmPoolSize()) {
    this.#ctx = ctx;
    this.#size = size;
    this.#removingUnused = this.#removeUnused();
  }

  /** Gives the caller a container that fits, if there is one or one is being created. The caller owns it afterwards. */
  async take(checkpoint: CheckpointId, source: ContainerSource): Promise<ContainerSetup | undefined> {
    const found = this.#takeReady(checkpoint, source);
    if (found !== undefined || !this.#creating.has(checkpoint)) return found;
    await this.#creating.get(checkpoint);
    return this.#takeReady(checkpoint, source);
  }

  #takeReady(checkpoint: CheckpointId, source: ContainerSource): ContainerSetup | undefined {
    const system = source.system?.fingerprint ?? null;
    const found = this.#ready.findIndex(
      (container) =>
        container.checkpoint === checkpoint &&
        container.tools === source.tools.fingerprint &&
        container.system === system &&
        container.runscDigest === source.binary.digest &&
        container.preparedRestore?.isWaiting === true,
    );
    return found < 0 ? undefined : this.#ready.splice(found, 1)[0];
  }

  /** Creates up to `count` containers for a checkpoint that is likely to be started. Returns at once. */
  warmUp(checkpoint: ExpectedCheckpoint, count = 1): void {
    const { id, parts } = checkpoint;
    if (!parts.memory || this.#closing.signal.aborted || this.#creating.has(id)) return;
    const ready = this.#ready.filter((container) => container.checkpoint === id).length;
    if (ready >= Math.min(count, MAX_PER_CHECKPOINT, this.#size)) return;
    const creating = this.#createOne(checkpoint).then(
      () => {
        this.#creating.delete(id);
        if (ready + 1 < count) this.warmUp(checkpoint, count);
      },
      (error: unknown) => {
        // No retry: the same error is likely.
        this.#creating.delete(id);
        if (!this.#closing.signal.aborted)
          this.#ctx.report('a container could not be created in advance', { error });
      },
    );
    this.#creating.set(id, creating);
  }

  /** Removes the containers of a checkpoint that cannot be started any more, also one that is being created. */
  async discard(checkpoint: CheckpointId): Promise<void> {
    while (this.#creating.has(checkpoint)) await this.#creating.get(checkpoint);
    const useless = this.#ready.filter((container) => container.checkpoint === checkpoint);
    for (const container of useless) await this.#remove(container);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([this.#removingUnused, ...this.#creating.values()]);
    for (const container of [...this.#ready]) await this.#remove(container);
  }

  async #createOne(checkpoint: ExpectedCheckpoint): Promise<void> {
    const created = await this.#create(checkpoint, this.#closing.signal);
    this.#ready.push(created);
    const oldest = this.#ready.slice(0, Math.max(0, this.#ready.length - this.#size));
    for (const container of oldest) await this.#remove(container);
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

  async #create(checkpoint: ExpectedCheckpoint, signal: AbortSignal): Promise<PreCreatedContainer> {
    const { layers, runsc, clock } = this.#ctx;
    const { name, directory } = newUnassignedPaths(this.#ctx);
    const source = await containerSourceFor(this.#ctx, needsOf(checkpoint), 'memory');
    const upper = await layers.create();
    const paths = pathsIn(directory);
    try {
      const options = { name, paths, source, upper, hostname: 'sandbox' };
      const setup = await setUpContainer(this.#ctx, options, signal);
      await runsc.create(setup.container, signal);
      const preparedRestore = await runsc.prepareRestore(setup.container);
      return {
        ...setup,
        preparedRestore,
        checkpoint: checkpoint.id,
        directory,
        tools: source.tools.fingerprint,
        system: source.system?.fingerprint ?? null,
        runscDigest: source.binary.digest,
        createdAt: clock.now(),
      };
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
