/**
 * Containers made ahead for checkpoints that are likely to be started next, so that a start only has to bring
 * the memory in. Few of them, for a while, and never on the way of a caller.
 */
import { totalmem } from 'node:os';
import type { SealedCheckpoint } from '@torpor/engine';
import type { CheckpointId } from '@torpor/protocol';
import { needsOf } from '../checkpoint-needs.ts';
import { pathsIn } from '../instance/instance-files.ts';
import type { RuntimeContext } from '../runtime-context.ts';
import { containerSourceFor } from '../start.ts';
import {
  type ContainerSetup,
  type ContainerSource,
  newPreparedPlace,
  setUpContainer,
  tearDownContainer,
} from './container-setup.ts';

/** What each takes until it is used. */
const BYTES_EACH = 25 * 1024 * 1024;
const SHARE_OF_MEMORY = 1 / 64;
const MOST_OF_ONE = 2;

/** Of all checkpoints together. */
export function warmPoolSize(memory = totalmem()): number {
  return Math.min(16, Math.max(2, Math.floor((memory * SHARE_OF_MEMORY) / BYTES_EACH)));
}

/** As much of a checkpoint as a setup for it takes. */
export type Expected = Omit<SealedCheckpoint, 'path'>;

const TIDY_EVERY_MS = 30_000;

interface Waiting extends ContainerSetup {
  readonly checkpoint: CheckpointId;
  readonly directory: string;
  readonly tools: string;
  readonly system: string | null;
  readonly runsc: string;
  readonly madeAt: number;
}

export class WarmPool {
  readonly #ctx: RuntimeContext;
  readonly #most: number;
  readonly #ready: Waiting[] = [];
  /** One at a time for each checkpoint; it resolves however it ends. */
  readonly #making = new Map<CheckpointId, Promise<void>>();
  readonly #closing = new AbortController();
  readonly #tidying: Promise<void>;

  constructor(ctx: RuntimeContext, most = warmPoolSize()) {
    this.#ctx = ctx;
    this.#most = most;
    this.#tidying = this.#tidy();
  }

  /** The one that fits, if there is one or is about to be; from here on it is the caller's. */
  async take(checkpoint: CheckpointId, source: ContainerSource): Promise<ContainerSetup | undefined> {
    const found = this.#takeReady(checkpoint, source);
    if (found !== undefined || !this.#making.has(checkpoint)) return found;
    await this.#making.get(checkpoint);
    return this.#takeReady(checkpoint, source);
  }

  #takeReady(checkpoint: CheckpointId, source: ContainerSource): ContainerSetup | undefined {
    const system = source.system?.fingerprint ?? null;
    const found = this.#ready.findIndex(
      (one) =>
        one.checkpoint === checkpoint &&
        one.tools === source.tools.fingerprint &&
        one.system === system &&
        one.runsc === source.binary.digest &&
        one.preparedRestore?.isWaiting === true,
    );
    return found < 0 ? undefined : this.#ready.splice(found, 1)[0];
  }

  /** A start from this checkpoint is to be expected. Returns at once. */
  expect(checkpoint: Expected, howMany = 1): void {
    const { id, parts } = checkpoint;
    if (!parts.memory || this.#closing.signal.aborted || this.#making.has(id)) return;
    const there = this.#ready.filter((one) => one.checkpoint === id).length;
    if (there >= Math.min(howMany, MOST_OF_ONE, this.#most)) return;
    const making = this.#makeOne(checkpoint).then(
      () => {
        this.#making.delete(id);
        if (there + 1 < howMany) this.expect(checkpoint, howMany);
      },
      (error: unknown) => {
        // Not again by itself: whatever kept it from being made would do so at once.
        this.#making.delete(id);
        if (!this.#closing.signal.aborted) this.#ctx.report('a container could not be made ahead', { error });
      },
    );
    this.#making.set(id, making);
  }

  /** What was made for this checkpoint, or just is, is of no use any more. */
  async forget(checkpoint: CheckpointId): Promise<void> {
    while (this.#making.has(checkpoint)) await this.#making.get(checkpoint);
    const useless = this.#ready.filter((one) => one.checkpoint === checkpoint);
    for (const one of useless) await this.#drop(one);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([this.#tidying, ...this.#making.values()]);
    for (const one of [...this.#ready]) await this.#drop(one);
  }

  async #makeOne(checkpoint: Expected): Promise<void> {
    const made = await this.#make(checkpoint, this.#closing.signal);
    this.#ready.push(made);
    for (const one of this.#ready.slice(0, Math.max(0, this.#ready.length - this.#most))) {
      await this.#drop(one);
    }
  }

  /** Takes away those that nobody came for. */
  async #tidy(): Promise<void> {
    const { clock, settings } = this.#ctx;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await clock.sleep(Math.min(TIDY_EVERY_MS, settings.aheadKeepMs), signal).catch(() => {});
      const oldest = clock.now() - settings.aheadKeepMs;
      for (const one of this.#ready.filter(({ madeAt }) => madeAt < oldest)) await this.#drop(one);
    }
  }

  async #make(checkpoint: Expected, signal: AbortSignal): Promise<Waiting> {
    const { layers, runsc, clock } = this.#ctx;
    const { name, directory } = newPreparedPlace(this.#ctx);
    const source = await containerSourceFor(this.#ctx, needsOf(checkpoint), 'memory');
    const upper = await layers.create();
    const paths = pathsIn(directory);
    try {
      const order = { name, paths, source, upper, hostname: 'sandbox' };
      const setup = await setUpContainer(this.#ctx, order, signal);
      await runsc.create(setup.container, signal);
      const preparedRestore = await runsc.prepareRestore(setup.container);
      const system = source.system?.fingerprint ?? null;
      return {
        ...setup,
        preparedRestore,
        checkpoint: checkpoint.id,
        directory,
        tools: source.tools.fingerprint,
        system,
        runsc: source.binary.digest,
        madeAt: clock.now(),
      };
    } catch (thrown) {
      await this.#clear({ name, directory }, upper);
      throw thrown;
    }
  }

  async #drop(one: Waiting): Promise<void> {
    const at = this.#ready.indexOf(one);
    // Somebody took it, or is dropping it.
    if (at < 0) return;
    this.#ready.splice(at, 1);
    await this.#clear({ name: one.container.id, directory: one.directory }, one.upper);
  }

  async #clear(setup: { readonly name: string; readonly directory: string }, upper: ContainerSetup['upper']) {
    const { bundle, rootfs } = pathsIn(setup.directory);
    const unhurried = new AbortController().signal;
    await tearDownContainer(this.#ctx, { ...setup, bundle, rootfs }, unhurried);
    await this.#ctx.layers.remove(upper);
  }
}
