/**
 * Repairs sandboxes whose instance ended between two rounds of the reconciler. The runtime reports the end, or a call
 * finds the instance dead. The repair begins at once. Calls for the same sandbox share one repair.
 */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { findOpenOperation } from '../operations/operation.ts';
import type { Instance } from '../ports/runtime.ts';
import { findSandbox, type Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { compareSandbox } from './reconciler.ts';

export class EndedInstances {
  readonly #context: () => Context;
  readonly #repairing = new Map<SandboxId, Promise<void>>();

  /** A function, because this object is a part of the context and made before the context is complete. */
  constructor(context: () => Context) {
    this.#context = context;
  }

  /** Called by the runtime when an instance has ended. Returns at once. */
  onEnded(instance: Instance): void {
    this.#context().background.run(`repairing ${instance.sandboxId}`, async () => {
      const sandbox = await findSandbox(this.#context().db, instance.sandboxId);
      if (sandbox?.generation === instance.generation) await this.#repair(sandbox);
    });
  }

  /** For a caller that found the instance dead: waits for the repair, but not longer than for an observation. */
  async waitForRepair(sandbox: Sandbox): Promise<void> {
    const { clock, settings } = this.#context();
    await withTimeout(clock, settings.observeMs, 'Repairing', () => this.#repair(sandbox)).catch(
      (error: unknown) =>
        this.#context().report('the repair of a sandbox that has ended continues', {
          sandboxId: sandbox.id,
          error,
        }),
    );
  }

  #repair(sandbox: Sandbox): Promise<void> {
    const known = this.#repairing.get(sandbox.id);
    if (known !== undefined) return known;
    const repairing = this.#compareWhenIdle(sandbox).finally(() => this.#repairing.delete(sandbox.id));
    this.#repairing.set(sandbox.id, repairing);
    return repairing;
  }

  /** Waits first for the open operation, which may deal with the end of the instance itself. */
  async #compareWhenIdle(sandbox: Sandbox): Promise<void> {
    const open = await findOpenOperation(this.#context().db, sandbox.id);
    if (open !== undefined)
      await this.#context()
        .operations.finished(open.id, this.#context().stopping)
        .catch(() => {});
    const now = await findSandbox(this.#context().db, sandbox.id);
    if (now?.state !== 'running' || now.generation !== sandbox.generation) return;
    await compareSandbox(this.#context(), now);
  }
}
