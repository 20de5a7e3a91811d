/**
 * Containers made ahead for checkpoints that are likely to be started next, so that a start only has to bring
 * the memory in. Few of them, for a while, and never on the way of a caller.
 */
import { totalmem } from 'node:os';
import type { SealedCheckpoint } from '@torpor/engine';
import type { CheckpointId } from '@torpor/protocol';
import { type Berth, clearBerth, makeBerth, newBerth, type Stack } from './berth.ts';
import { needsOf } from './checkpoint-needs.ts';
import type { Ground } from './ground.ts';
import { pathsIn } from './instance-files.ts';
import { stackFor } from './start.ts';

/** What each takes until it is used. */
const BYTES_EACH = 25 * 1024 * 1024;
const SHARE_OF_MEMORY = 1 / 64;
const MOST_OF_ONE = 2;

/** Of all checkpoints together. */
export function mostBerths(memory = totalmem()): number {
  return Math.min(16, Math.max(2, Math.floor((memory * SHARE_OF_MEMORY) / BYTES_EACH)));
}

/** As much of a checkpoint as a berth for it takes. */
export type Expected = Omit<SealedCheckpoint, 'path'>;

const TIDY_EVERY_MS = 30_000;

interface Waiting extends Berth {
  readonly checkpoint: CheckpointId;
  readonly directory: string;
  readonly tools: string;
  readonly system: string | null;
  readonly runsc: string;
  readonly madeAt: number;
}

export class Berths {
  readonly #ground: Ground;
  readonly #most: number;
  readonly #ready: Waiting[] = [];
  /** One at a time for each checkpoint; it resolves however it ends. */
  readonly #making = new Map<CheckpointId, Promise<void>>();
  readonly #closing = new AbortController();
  readonly #tidying: Promise<void>;

  constructor(ground: Ground, most = mostBerths()) {
    this.#ground = ground;
    this.#most = most;
    this.#tidying = this.#tidy();
  }

  /** The one that fits, if there is one or is about to be; from here on it is the caller's. */
  async take(checkpoint: CheckpointId, stack: Stack): Promise<Berth | undefined> {
    const found = this.#takeReady(checkpoint, stack);
    if (found !== undefined || !this.#making.has(checkpoint)) return found;
    await this.#making.get(checkpoint);
    return this.#takeReady(checkpoint, stack);
  }

  #takeReady(checkpoint: CheckpointId, stack: Stack): Berth | undefined {
    const system = stack.system?.fingerprint ?? null;
    const found = this.#ready.findIndex(
      (one) =>
        one.checkpoint === checkpoint &&
        one.tools === stack.tools.fingerprint &&
        one.system === system &&
        one.runsc === stack.binary.digest &&
        one.poised?.isWaiting === true,
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
        if (!this.#closing.signal.aborted)
          this.#ground.report('a container could not be made ahead', { error });
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
    const { clock, settings } = this.#ground;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      await clock.sleep(Math.min(TIDY_EVERY_MS, settings.aheadKeepMs), signal).catch(() => {});
      const oldest = clock.now() - settings.aheadKeepMs;
      for (const one of this.#ready.filter(({ madeAt }) => madeAt < oldest)) await this.#drop(one);
    }
  }

  async #make(checkpoint: Expected, signal: AbortSignal): Promise<Waiting> {
    const { layers, runsc, clock } = this.#ground;
    const { name, directory } = newBerth(this.#ground);
    const stack = await stackFor(this.#ground, needsOf(checkpoint), 'memory');
    const upper = await layers.create();
    const paths = pathsIn(directory);
    try {
      const order = { name, paths, stack, upper, hostname: 'sandbox' };
      const berth = await makeBerth(this.#ground, order, signal);
      await runsc.create(berth.container, signal);
      const poised = await runsc.poise(berth.container);
      const system = stack.system?.fingerprint ?? null;
      return {
        ...berth,
        poised,
        checkpoint: checkpoint.id,
        directory,
        tools: stack.tools.fingerprint,
        system,
        runsc: stack.binary.digest,
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

  async #clear(berth: { readonly name: string; readonly directory: string }, upper: Berth['upper']) {
    const { bundle, rootfs } = pathsIn(berth.directory);
    const unhurried = new AbortController().signal;
    await clearBerth(this.#ground, { ...berth, bundle, rootfs }, unhurried);
    await this.#ground.layers.remove(upper);
  }
}
