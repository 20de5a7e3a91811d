/**
 * What networks refused, as lines of the ledger for who uses the sandbox. A sandbox is a stranger's: it gets a
 * bounded number of lines in an hour, and what it does beyond that is for the log alone.
 */
import { Mutex } from '@torpor/host';
import type { SandboxId, SandboxState } from '@torpor/protocol';
import { type Context, note } from '../context.ts';
import type { Instance, Refusal } from '../ports/runtime.ts';
import { findSandbox, lockSandbox } from '../sandbox.ts';

const LIVE_STATES: readonly SandboxState[] = ['creating', 'running', 'pausing', 'resuming'];
const MAX_EVENTS = 60;
const PERIOD_MS = 3_600_000;

export class NetworkRefusals {
  readonly #ctx: Context;
  readonly #written = new Map<SandboxId, { readonly since: number; lines: number }>();
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
    const entry = this.#written.get(id) ?? { since: now, lines: 0 };
    this.#written.set(id, entry);
    return ++entry.lines <= MAX_EVENTS;
  }

  async #write({ sandboxId, generation }: Instance, refusal: Refusal): Promise<void> {
    const ctx = this.#ctx;
    await ctx.db.transaction(async (tx) => {
      if ((await findSandbox(tx, sandboxId)) === undefined) return;
      const sandbox = await lockSandbox(tx, sandboxId);
      // It may have ended meanwhile, and then its last line was written.
      if (sandbox.generation !== generation || !LIVE_STATES.includes(sandbox.state)) return;
      await note(ctx, tx, sandbox, 'network.refused', refusal, { operationId: null });
    });
  }
}
