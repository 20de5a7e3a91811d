/** The lifetime of a sandbox: one write under its lock, outside of operations. */
import type { Actor, SandboxId, SandboxView } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { applyTransition } from '../ledger/transition.ts';
import { decide } from '../lifecycle.ts';
import { sandboxView } from '../queries/sandboxes.ts';
import { refusedBy } from '../refused-by.ts';
import { lockSandbox, noSuchSandbox } from '../sandbox.ts';

/**
 * Sets how long the sandbox may run from now on, and from each resume on. Null: without end. Only this verb may
 * shorten a lifetime.
 */
export async function setLifetime(
  ctx: Context,
  org: string,
  id: SandboxId,
  timeoutSeconds: number | null,
  by?: Actor,
): Promise<SandboxView> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    if (sandbox.org !== org) throw noSuchSandbox(id);
    const decision = decide(sandbox.state, 'set_lifetime');
    if (decision.kind === 'refused') {
      throw refusedBy(sandbox, `The sandbox is ${sandbox.state}; it has no lifetime to set.`);
    }
    const timeoutMs = timeoutSeconds === null ? null : timeoutSeconds * 1_000;
    const endsAt = sandbox.state === 'running' && timeoutMs !== null ? ctx.clock.now() + timeoutMs : null;
    await applyTransition(
      ctx,
      tx,
      sandbox,
      'set_lifetime',
      'lifetime.set',
      { endsAt, timeoutSeconds },
      { operationId: null, by, change: { endsAt, timeoutMs } },
    );
  });
  return sandboxView(ctx, org, id);
}

/**
 * Sets when the present run ends, and does not change the lifetime of later runs. `at least` never makes the end
 * earlier, and leaves a run without an end unchanged.
 */
export async function setEnd(
  ctx: Context,
  org: string,
  id: SandboxId,
  seconds: number,
  how: 'exactly' | 'at least',
  by?: Actor,
): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    if (sandbox.org !== org) throw noSuchSandbox(id);
    if (sandbox.state !== 'running') {
      throw refusedBy(sandbox, `The sandbox is ${sandbox.state}; no run of it can end.`);
    }
    const endsAt = ctx.clock.now() + seconds * 1_000;
    if (how === 'at least' && (sandbox.endsAt ?? Number.POSITIVE_INFINITY) >= endsAt) return;
    const data = { endsAt, timeoutSeconds: seconds };
    await applyTransition(ctx, tx, sandbox, 'set_lifetime', 'lifetime.set', data, {
      operationId: null,
      by,
      change: { endsAt },
    });
  });
}

/** Extends the lifetime of a running sandbox to at least this long from now. Never shortens it. */
export async function extendLifetime(
  ctx: Context,
  id: SandboxId,
  timeoutSeconds: number | undefined,
): Promise<void> {
  if (timeoutSeconds === undefined) return;
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    const endsAt = ctx.clock.now() + timeoutSeconds * 1_000;
    if (sandbox.state !== 'running' || sandbox.endsAt === null || sandbox.endsAt >= endsAt) return;
    const data = { endsAt, timeoutSeconds };
    await applyTransition(ctx, tx, sandbox, 'set_lifetime', 'lifetime.set', data, {
      operationId: null,
      change: { endsAt },
    });
  });
}
