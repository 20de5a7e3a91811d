/**
 * What networks refused, as lines of the ledger for who uses the sandbox. A sandbox is a stranger's: it gets a
 * bounded number of lines in an hour, and what it does beyond that is for the log alone.
 */
import type { SandboxId, SandboxState } from '@torpor/protocol';
import { type Context, note } from '../context.ts';
import type { Instance, Refusal } from '../ports/runtime.ts';
import { findSandbox, lockSandbox } from '../sandbox.ts';

const LIVING: readonly SandboxState[] = ['creating', 'running', 'pausing', 'resuming'];
const LINES = 60;
const PER_MS = 3_600_000;

export class RefusalLines {
  private readonly ctx: Context;
  private readonly written = new Map<SandboxId, { readonly since: number; lines: number }>();

  private last: Promise<void> = Promise.resolve();

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /** Returns at once. */
  add(instance: Instance, refusal: Refusal): void {
    const { ctx } = this;
    ctx.report('a connection was refused', { ...instance, ...refusal });
    if (!this.mayWrite(instance.sandboxId)) return;
    // One after the other: a burst of them must not take the database from everybody else.
    const write = this.last.then(() => this.write(instance, refusal));
    this.last = write.catch(() => {});
    ctx.background.run('writing a refusal', () => write);
  }

  private mayWrite(id: SandboxId): boolean {
    const now = this.ctx.clock.now();
    for (const [other, { since }] of this.written) if (now - since >= PER_MS) this.written.delete(other);
    const entry = this.written.get(id) ?? { since: now, lines: 0 };
    this.written.set(id, entry);
    return ++entry.lines <= LINES;
  }

  private async write({ sandboxId, generation }: Instance, refusal: Refusal): Promise<void> {
    const { ctx } = this;
    await ctx.db.transaction(async (tx) => {
      if ((await findSandbox(tx, sandboxId)) === undefined) return;
      const sandbox = await lockSandbox(tx, sandboxId);
      // It may have ended meanwhile, and then its last line was written.
      if (sandbox.generation !== generation || !LIVING.includes(sandbox.state)) return;
      await note(ctx, tx, sandbox, 'network.refused', refusal, { operationId: null });
    });
  }
}
