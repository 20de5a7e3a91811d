/**
 * The short round, every second or so: lifetimes and idleness that have run out, heartbeats of this
 * server and of the sandboxes in use. What it finds is only a suspicion: each case is looked at again
 * under the sandbox's lock before anything happens to it.
 */
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { type Leases, lastActive, listIdle } from '../idleness.ts';
import type { Desk } from '../operations/desk.ts';
import { SANDBOX_COLUMNS, type Sandbox, toSandbox } from '../sandbox.ts';
import { kill } from '../verbs/kill.ts';
import { type Guard, pause } from '../verbs/pause.ts';
import { inPages } from './pages.ts';

/** The cause was gone when it was looked at under the lock; nothing was done. */
class NotDue extends Error {
  override readonly name = 'NotDue';
}

const LONGEST_PATIENCE_MS = 60_000;

export class Sweeper {
  private readonly ctx: Context;
  private readonly desk: Desk;
  private readonly leases: Leases;
  /** Sandboxes whose pause failed, and when to try again; lost with the process, which then tries at once. */
  private readonly patience = new Map<SandboxId, { readonly until: number; readonly waitMs: number }>();
  private seen: { readonly wall: number; readonly monotonic: number } | undefined;

  constructor(ctx: Context, desk: Desk, leases: Leases) {
    this.ctx = ctx;
    this.desk = desk;
    this.leases = leases;
  }

  async round(): Promise<void> {
    await this.leases.flush();
    if (this.clockJumped()) return;
    const { ctx } = this;
    const now = ctx.clock.now();
    const { pageSize } = ctx.settings;
    for (const sandbox of await listDue(ctx, now, pageSize)) {
      await this.end(sandbox, 'timeout', sandbox.onTimeout, (_, locked) => {
        if (locked.endsAt === null || locked.endsAt > ctx.clock.now()) throw new NotDue();
      });
    }
    for await (const sandbox of inPages((after, limit) => listIdle(ctx.db, now, after, limit), pageSize)) {
      if (sandbox.onIdle === 'keep' || this.leases.isUsed(sandbox.id)) continue;
      await this.end(sandbox, 'idle', sandbox.onIdle, async (tx, locked) => {
        const active = await lastActive(tx, locked.id);
        const used =
          this.leases.isUsed(locked.id) || active === null || active + locked.idleMs > ctx.clock.now();
        if (used) throw new NotDue();
      });
    }
  }

  private async end(
    sandbox: Sandbox,
    reason: 'timeout' | 'idle',
    how: 'pause' | 'kill',
    guard: Guard,
  ): Promise<void> {
    const { ctx, desk } = this;
    const waiting = this.patience.get(sandbox.id);
    if (waiting !== undefined && waiting.until > ctx.clock.monotonic()) return;
    const caller = { org: sandbox.org };
    try {
      if (how === 'pause') await pause(ctx, desk, caller, sandbox.id, {}, reason, guard);
      else await kill(ctx, desk, caller, sandbox.id, reason, guard);
      this.patience.delete(sandbox.id);
    } catch (thrown) {
      if (thrown instanceof NotDue) return;
      const waitMs = Math.min(LONGEST_PATIENCE_MS, (waiting?.waitMs ?? 500) * 2);
      this.patience.set(sandbox.id, { until: ctx.clock.monotonic() + waitMs, waitMs });
      if (thrown instanceof TorporError && thrown.code === 'transitioning') return;
      ctx.report(`${how} at ${reason} failed`, { sandboxId: sandbox.id, error: thrown });
    }
  }

  /** After a jump of the wall clock one round is left out: deadlines are judged by a clock that has settled. */
  private clockJumped(): boolean {
    const now = { wall: this.ctx.clock.now(), monotonic: this.ctx.clock.monotonic() };
    const before = this.seen;
    this.seen = now;
    if (before === undefined) return false;
    const jump = now.wall - before.wall - (now.monotonic - before.monotonic);
    if (Math.abs(jump) <= this.ctx.settings.clockJumpMs) return false;
    this.ctx.report('clock jumped', { byMs: Math.round(jump) });
    return true;
  }
}

async function listDue(ctx: Context, now: number, limit: number): Promise<Sandbox[]> {
  const rows = await ctx.db.query(
    `SELECT ${SANDBOX_COLUMNS} FROM sandboxes
     WHERE state = 'running' AND ends_at IS NOT NULL AND ends_at <= $1 ORDER BY ends_at LIMIT $2`,
    [now, limit],
  );
  return rows.map(toSandbox);
}
