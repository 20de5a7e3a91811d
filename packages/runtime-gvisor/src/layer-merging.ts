/**
 * Merges the layers under a running instance into one layer, so that stacks do not grow without bound. Nothing changes for
 * the instance itself: its next checkpoint has the merged layer instead of the many.
 */
import type { Instance } from '@torpor/engine';
import type { InstanceRecord } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

type Exclusively = (instance: Instance, work: () => Promise<void>) => Promise<void>;

export class LayerMerging {
  readonly #ctx: RuntimeContext;
  readonly #exclusively: Exclusively;
  readonly #closing = new AbortController();
  /** One merge at a time: no request waits for it, and it must not slow down the disk for those that do. */
  #last: Promise<void> = Promise.resolve();

  constructor(ctx: RuntimeContext, exclusively: Exclusively) {
    this.#ctx = ctx;
    this.#exclusively = exclusively;
  }

  /** Starts in the background. */
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
    const { files, layers, diskProjects } = this.#ctx;
    const record = files.read(instance);
    if (record === undefined || this.#closing.signal.aborted) return;
    // The last layer belongs to the template, which many sandboxes share.
    const from = record.lower.slice(0, -1).map(({ id }) => id);
    const merged = await layers.merge(from, this.#closing.signal);
    await this.#exclusively(instance, async () => {
      const now = files.read(instance);
      if (now === undefined || now.capturedFor !== null) return layers.remove(merged);
      await diskProjects?.merged(from, merged, this.#closing.signal);
      const next: InstanceRecord = { ...now, merged };
      await files.write(instance, next);
    });
  }
}
