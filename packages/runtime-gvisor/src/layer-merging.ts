/**
 * Merges the layers under a running instance into one, so that stacks do not grow for ever. Nothing changes
 * for the instance itself: its next checkpoint stands on the one layer instead of the many.
 */
import type { Instance } from '@torpor/engine';
import type { InstanceRecord } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

type InTurn = (instance: Instance, work: () => Promise<void>) => Promise<void>;

export class LayerMerging {
  readonly #ctx: RuntimeContext;
  readonly #inTurn: InTurn;
  readonly #closing = new AbortController();
  /** One at a time: it is for later, and must not take the disk from those who work now. */
  #last: Promise<void> = Promise.resolve();

  constructor(ctx: RuntimeContext, inTurn: InTurn) {
    this.#ctx = ctx;
    this.#inTurn = inTurn;
  }

  /** Returns at once. */
  begin(instance: Instance): void {
    this.#last = this.#last
      .then(() => this.#merge(instance))
      .catch((error: unknown) => {
        if (!this.#closing.signal.aborted)
          this.#ctx.report('layers could not be merged', { ...instance, error });
      });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#last;
  }

  async #merge(instance: Instance): Promise<void> {
    const { files, layers } = this.#ctx;
    const record = files.read(instance);
    if (record === undefined || this.#closing.signal.aborted) return;
    // The last is the template's, which everybody stands on.
    const merged = await layers.merge(
      record.lower.slice(0, -1).map(({ id }) => id),
      this.#closing.signal,
    );
    await this.#inTurn(instance, async () => {
      const now = files.read(instance);
      if (now === undefined || now.sealedFor !== null) return layers.remove(merged);
      const next: InstanceRecord = { ...now, merged };
      await files.write(instance, next);
    });
  }
}
