/**
 * Records refused connections as events of the ledger, for the users of the sandbox. Programs in a sandbox are untrusted:
 * a sandbox gets a bounded number of events in an hour, and further refusals go to the log alone.
 */
import { Mutex } from '@torpor/host';
import type { SandboxId, SandboxState } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import type { Instance, Refusal } from '../ports/runtime.ts';
import { findSandbox, lockSandbox } from '../sandbox.ts';

const LIVE_STATES: readonly SandboxState[] = ['creating', 'running', 'pausing', 'resuming'];
const MAX_EVENTS = 60;
const PERIOD_MS = 3_600_000;

export class NetworkRefusals {
  readonly #ctx: Context;
  readonly #written = new Map<SandboxId, { readonly since: number; events: number }>();
  /** Refusals are written one after the other: a burst of them must not keep the database from other requests. */
  readonly #mutex = new Mutex();

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  /** Returns at once. */
  add(instance: Instance, refusal: Refusal): void {
    const ctx = this.#ctx;
    ctx.report('a connection was refused', { ...instance, ...refusal });
    if (!this.#mayWrite(instance.sandboxId)) return;
    ctx.background.run('writing a refusal', () => this.#mutex.run(() => this.#write(instance, refusal)));
  }

  #mayWrite(id: SandboxId): boolean {
    const now = this.#ctx.clock.now();
    for (const [other, { since }] of this.#written) if (now - since >= PERIOD_MS) this.#written.delete(other);
    const entry = this.#written.get(id) ?? { since: now, events: 0 };
    this.#written.set(id, entry);
    return ++entry.events <= MAX_EVENTS;
  }

  async #write({ sandboxId, generation }: Instance, refusal: Refusal): Promise<void> {
    const ctx = this.#ctx;
    await ctx.db.transaction(async (tx) => {
      if ((await findSandbox(tx, sandboxId)) === undefined) return;
      const sandbox = await lockSandbox(tx, sandboxId);
      // The sandbox may have ended meanwhile; then its last event is written already.
      if (sandbox.generation !== generation || !LIVE_STATES.includes(sandbox.state)) return;
      await recordEvent(ctx, tx, sandbox, 'network.refused', refusal, { operationId: null });
    });
  }
}
