/**
 * Ends of sandboxes that are seen between two rounds of the reconciler: by the runtime itself, or by a call that meets
 * a dead instance. Each is repaired at once, and once for everybody who sees it.
 */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { findOpenOperation } from '../operations/operation.ts';
import type { Instance } from '../ports/runtime.ts';
import { findSandbox, type Sandbox } from '../sandbox.ts';
import { within } from '../within.ts';
import { compareNow } from './reconciler.ts';

export class Endings {
  private readonly context: () => Context;
  private readonly repairing = new Map<SandboxId, Promise<void>>();

  constructor(context: () => Context) {
    this.context = context;
  }

  /** The runtime says that an instance has ended. Returns at once. */
  seen(instance: Instance): void {
    this.context().background.run(`repairing ${instance.sandboxId}`, async () => {
      const sandbox = await findSandbox(this.context().db, instance.sandboxId);
      if (sandbox?.generation === instance.generation) await this.repair(sandbox);
    });
  }

  /** For a caller that saw the sandbox gone: waits for the repair, but not longer than for an observation. */
  async settle(sandbox: Sandbox): Promise<void> {
    const { clock, settings } = this.context();
    await within(clock, settings.observeMs, 'Repairing', () => this.repair(sandbox)).catch((error: unknown) =>
      this.context().report('the repair of a sandbox that has ended goes on', {
        sandboxId: sandbox.id,
        error,
      }),
    );
  }

  private repair(sandbox: Sandbox): Promise<void> {
    const known = this.repairing.get(sandbox.id);
    if (known !== undefined) return known;
    const repairing = this.compareAfterOthers(sandbox).finally(() => this.repairing.delete(sandbox.id));
    this.repairing.set(sandbox.id, repairing);
    return repairing;
  }

  /** An operation that is under way finds the end itself, or leaves the sandbox to be looked at after it. */
  private async compareAfterOthers(sandbox: Sandbox): Promise<void> {
    const open = await findOpenOperation(this.context().db, sandbox.id);
    if (open !== undefined)
      await this.context()
        .operations.finished(open.id, this.context().stopping)
        .catch(() => {});
    const now = await findSandbox(this.context().db, sandbox.id);
    if (now?.state !== 'running' || now.generation !== sandbox.generation) return;
    await compareNow(this.context(), now);
  }
}
