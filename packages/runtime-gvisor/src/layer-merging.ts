/**
 * Merges the layers under a running instance into one layer, so that stacks do not grow without bound. Nothing changes for
 * the instance itself: its next checkpoint has the merged layer instead of the many.
 */
import type { Instance } from '@torpor/engine';
import type { SandboxId } from '@torpor/protocol';
import type { InstanceRecord } from './instance/instance-files.ts';
import type { RuntimeContext } from './runtime-context.ts';

/** How long a pause waits for the merge of a large stack. A merge makes one link for each file of the merged layers. */
const MAX_WAIT_MS = 10_000;

type Exclusively = (instance: Instance, work: () => Promise<void>) => Promise<void>;

type MergingContext = Pick<RuntimeContext, 'clock' | 'diskProjects' | 'files' | 'layers' | 'report'>;

export class LayerMerging {
  readonly #ctx: MergingContext;
  readonly #exclusively: Exclusively;
  readonly #closing = new AbortController();
  /** One merge at a time: no request waits for it, and it must not slow down the disk for those that do. */
  #last: Promise<void> = Promise.resolve();
  /** The last merge of each sandbox, until it is over. */
  readonly #unfinished = new Map<SandboxId, Promise<void>>();

  constructor(ctx: MergingContext, exclusively: Exclusively) {
    this.#ctx = ctx;
    this.#exclusively = exclusively;
  }

  /** Starts in the background. */
  begin(instance: Instance): void {
    const { sandboxId } = instance;
    const merging = this.#last
      .then(() => this.#merge(instance))
      .catch((error: unknown) => {
        if (!this.#closing.signal.aborted)
          this.#ctx.report('layers could not be merged', { ...instance, error });
      })
      .finally(() => {
        if (this.#unfinished.get(sandboxId) === merging) this.#unfinished.delete(sandboxId);
      });
    this.#last = merging;
    this.#unfinished.set(sandboxId, merging);
  }

  /**
   * Waits for the merge of this instance, if there is one, but not for long. Called before an instance with a large stack is
   * captured: a merge that is not over by then is lost, so the stack of a sandbox that is always paused soon after it was
   * started would grow until it cannot be mounted.
   */
  async finish({ sandboxId }: Instance, signal: AbortSignal): Promise<void> {
    const unfinished = this.#unfinished.get(sandboxId);
    if (unfinished === undefined) return;
    const ended = new AbortController();
    const bound = AbortSignal.any([signal, ended.signal]);
    const waiting = this.#ctx.clock.sleep(MAX_WAIT_MS, bound).catch(() => {});
    await Promise.race([unfinished, waiting]);
    ended.abort();
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
