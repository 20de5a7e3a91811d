/**
 * The short round, every second or so: pauses or kills sandboxes whose lifetime or idle time has run out. The queries
 * only find candidates: each candidate is checked again under the sandbox's lock before anything happens.
 */
import { forEachBounded } from '@torpor/host';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { endedByCaptureFailure } from '../acts/capture-failure.ts';
import type { FilesOnlyFallback } from '../acts/seal-plan.ts';
import type { Context } from '../context.ts';
import { idleAt, type Leases, listIdle } from '../idleness.ts';
import type { Queryable } from '../ports/database.ts';
import { SANDBOX_COLUMNS, type Sandbox, toSandbox } from '../sandbox.ts';
import { killByPolicy } from '../verbs/kill.ts';
import { type Guard, pauseByPolicy } from '../verbs/pause.ts';
import { inPages } from './pages.ts';

/** The sandbox was no longer due when it was checked under the lock; nothing was done. */
export class NotDue extends Error {
  override readonly name = 'NotDue';
}

const MAX_BACKOFF_MS = 60_000;
const STOPPED = 'It was idle and was stopped, as its policy "onIdle" says.';

interface PauseBackoff {
  /** The generation whose pause failed; the backoff does not count for the next one. */
  readonly generation: number;
  readonly until: number;
  readonly waitMs: number;
  /** The last pause failed because the memory took too long to capture. */
  readonly isSlow: boolean;
}

export class Sweeper {
  readonly #ctx: Context;
  readonly #leases: Leases;
  /** Sandboxes whose pause failed, and when to try again. After a restart the server tries at once. */
  readonly #backoffs = new Map<SandboxId, PauseBackoff>();
  #lastClocks: { readonly wall: number; readonly monotonic: number } | undefined;

  constructor(ctx: Context, leases: Leases) {
    this.#ctx = ctx;
    this.#leases = leases;
  }

  async round(): Promise<void> {
    if (this.#clockJumped()) return;
    const ctx = this.#ctx;
    const now = ctx.clock.now();
    const { pageSize, hands } = ctx.settings;
    this.#dropOldBackoffs();
    const due = inPages(
      (after, limit) => listDue(ctx.db, ctx.node.name, now, after, limit),
      pageSize,
      ctx.stopping,
    );
    await forEachBounded(due, hands, (sandbox) =>
      this.#end(sandbox, 'timeout', sandbox.onTimeout, (_, locked) => {
        if (!isSameRun(sandbox, locked)) throw new NotDue();
        if (locked.endsAt === null || locked.endsAt > ctx.clock.now()) throw new NotDue();
      }),
    );
    // The activity of other servers appears in the rows only after a while.
    const idleSince = now - (ctx.ownsDataDirectory ? 0 : 2 * ctx.settings.activityEveryMs);
    const idle = inPages(
      (after, limit) => listIdle(ctx.db, ctx.node.name, idleSince, after, limit),
      pageSize,
      ctx.stopping,
    );
    await forEachBounded(idle, hands, async (sandbox) => {
      if (sandbox.onIdle === 'keep' || this.#leases.isUsed(sandbox.id)) return;
      await this.#end(sandbox, 'idle', sandbox.onIdle, async (tx, locked) => {
        const at = await idleAt(tx, locked.id);
        const used = this.#leases.isUsed(locked.id) || at === null || at > idleSince;
        if (used || !isSameRun(sandbox, locked)) throw new NotDue();
      });
    });
  }

  async #end(
    sandbox: Sandbox,
    reason: 'timeout' | 'idle',
    how: 'pause' | 'stop' | 'kill',
    guard: Guard,
  ): Promise<void> {
    const ctx = this.#ctx;
    const { generation } = sandbox;
    const known = this.#backoffs.get(sandbox.id);
    const waiting = known?.generation === generation ? known : undefined;
    if (waiting !== undefined && waiting.until > ctx.clock.monotonic()) return;
    try {
      const filesOnlyFallback = filesOnlyFallbackOf(sandbox, waiting?.isSlow === true);
      if (how === 'pause') await pauseByPolicy(ctx, sandbox, { reason, guard, filesOnlyFallback });
      else await killByPolicy(ctx, sandbox, reason, guard, how === 'stop' ? STOPPED : undefined);
      this.#backoffs.delete(sandbox.id);
    } catch (thrown) {
      if (thrown instanceof NotDue) return;
      const isUncapturable = endedByCaptureFailure(thrown);
      const isSlow = isUncapturable && thrown.code === 'timeout';
      // Every attempt freezes the sandbox for a while and writes events, so a lasting cause is not retried soon.
      const isStuck = isUncapturable && filesOnlyFallbackOf(sandbox, isSlow) === 'never';
      const waitMs = isStuck
        ? ctx.settings.pauseRetryMs
        : Math.min(MAX_BACKOFF_MS, (waiting?.waitMs ?? 500) * 2);
      this.#backoffs.set(sandbox.id, { generation, until: ctx.clock.monotonic() + waitMs, waitMs, isSlow });
      if (thrown instanceof TorporError && thrown.code === 'transitioning') return;
      ctx.report(`${how} at ${reason} failed`, { sandboxId: sandbox.id, error: thrown });
    }
  }

  #dropOldBackoffs(): void {
    const now = this.#ctx.clock.monotonic();
    for (const [id, { until, waitMs, isSlow }] of this.#backoffs) {
      // A sandbox that is used meanwhile is still slow to capture when it is idle again.
      const keepMs = isSlow ? this.#ctx.settings.pauseRetryMs : 2 * waitMs;
      if (until + keepMs < now) this.#backoffs.delete(id);
    }
  }

  /** After a jump of the wall clock one round is skipped, so that deadlines are compared with the corrected time. */
  #clockJumped(): boolean {
    const now = { wall: this.#ctx.clock.now(), monotonic: this.#ctx.clock.monotonic() };
    const before = this.#lastClocks;
    this.#lastClocks = now;
    if (before === undefined) return false;
    const jump = now.wall - before.wall - (now.monotonic - before.monotonic);
    if (Math.abs(jump) <= this.#ctx.settings.clockJumpMs) return false;
    this.#ctx.report('clock jumped', { byMs: Math.round(jump) });
    return true;
  }
}

/**
 * The sandbox's fallback policy says whether a pause may drop the processes. After a first timeout the capture is tried
 * again, because the machine may be busy; after a second one only the files are sealed.
 */
function filesOnlyFallbackOf({ config }: Sandbox, wasSlow: boolean): FilesOnlyFallback {
  if (!config.fallback.includes('files')) return 'never';
  return wasSlow ? 'on failure or timeout' : 'on failure';
}

/** The sandbox that is ended must still be in the run that was found due. */
function isSameRun(seen: Sandbox, locked: Sandbox): boolean {
  return locked.state === 'running' && locked.generation === seen.generation;
}

async function listDue(
  db: Queryable,
  node: string,
  now: number,
  after: string,
  limit: number,
): Promise<Sandbox[]> {
  const rows = await db.query(
    `SELECT ${SANDBOX_COLUMNS} FROM sandboxes
     WHERE state = 'running' AND ends_at <= $1 AND id > $2 AND node = $4 ORDER BY id LIMIT $3`,
    [now, after, limit, node],
  );
  return rows.map(toSandbox);
}
