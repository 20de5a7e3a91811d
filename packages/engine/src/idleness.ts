/**
 * Idleness. Leases are counted in memory. Each server refreshes one coarse activity row per sandbox that it holds
 * leases for, so that other servers see the sandbox in use.
 *
 * A crash may lose the counts: the connections that held the leases are lost with it.
 */
import type { SandboxId } from '@torpor/protocol';
import type { Context } from './context.ts';
import type { Queryable, Transaction } from './ports/database.ts';
import { SANDBOX_COLUMNS, type Sandbox, toSandbox } from './sandbox.ts';

/** Marks a sandbox as used now. Never moves the time of use backwards. */
export async function recordActivity(tx: Transaction, id: SandboxId, now: number): Promise<void> {
  await tx.query(
    `INSERT INTO sandbox_activity (sandbox_id, active_at, idle_at)
     SELECT id, CAST($2 AS {integer}),
       CASE WHEN on_idle = 'keep' THEN NULL ELSE CAST($2 AS {integer}) + idle_ms END
     FROM sandboxes WHERE id = $1 AND state NOT IN ('paused', 'killing', 'killed', 'failed', 'lost')
     ON CONFLICT (sandbox_id) DO UPDATE SET active_at = excluded.active_at, idle_at = excluded.idle_at
     WHERE sandbox_activity.active_at < excluded.active_at`,
    [id, now],
  );
}

/** For a sandbox that stops running: it cannot be idle. */
export async function deleteActivity(tx: Transaction, id: SandboxId): Promise<void> {
  await tx.query('DELETE FROM sandbox_activity WHERE sandbox_id = $1', [id]);
}

/** When a sandbox becomes idle; null when it never does. */
export async function idleAt(db: Queryable, id: SandboxId): Promise<number | null> {
  const [row] = await db.query<{ idle_at: number | null }>(
    'SELECT idle_at FROM sandbox_activity WHERE sandbox_id = $1',
    [id],
  );
  return row?.idle_at ?? null;
}

/** Running sandboxes of a node whose idle time has run out, in pages by id. */
export async function listIdle(
  db: Queryable,
  node: string,
  now: number,
  after: string,
  limit: number,
): Promise<Sandbox[]> {
  const columns = SANDBOX_COLUMNS.split(',').map((column) => `s.${column.trim()}`);
  const rows = await db.query(
    `SELECT ${columns.join(', ')} FROM sandbox_activity a JOIN sandboxes s ON s.id = a.sandbox_id
     WHERE a.idle_at IS NOT NULL AND a.idle_at <= $1 AND s.state = 'running' AND s.id > $2 AND s.node = $4
     ORDER BY s.id LIMIT $3`,
    [now, after, limit, node],
  );
  return rows.map(toSandbox);
}

/** Leases of work that uses a sandbox. A lease prevents only the pause for idleness. */
export class Leases {
  readonly #ctx: Context;
  readonly #counts = new Map<SandboxId, number>();
  /** Used since the last flush, whether or not a lease is still held. */
  readonly #used = new Set<SandboxId>();
  #flushedAt: number;

  constructor(ctx: Context) {
    this.#ctx = ctx;
    this.#flushedAt = ctx.clock.monotonic();
  }

  /** Prevents idleness until the returned function is called; a second call of it has no effect. */
  hold(id: SandboxId): () => void {
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
    this.#used.add(id);
    let released = false;
    return () => {
      if (released) return;
      released = true;
      const left = (this.#counts.get(id) ?? 1) - 1;
      if (left > 0) this.#counts.set(id, left);
      else this.#counts.delete(id);
      this.#used.add(id);
    };
  }

  count(id: SandboxId): number {
    return this.#counts.get(id) ?? 0;
  }

  /** Whether this server knows of a use that the activity row may not show yet. */
  isUsed(id: SandboxId): boolean {
    return this.#counts.has(id) || this.#used.has(id);
  }

  /** Writes the activity rows of used sandboxes, at most once per `activityEveryMs`. */
  async flush(): Promise<void> {
    if (this.#ctx.clock.monotonic() - this.#flushedAt < this.#ctx.settings.activityEveryMs) return;
    this.#flushedAt = this.#ctx.clock.monotonic();
    const ids = new Set([...this.#counts.keys(), ...this.#used]);
    if (ids.size === 0) return;
    this.#used.clear();
    const now = this.#ctx.clock.now();
    try {
      await this.#ctx.db.transaction(async (tx) => {
        for (const id of ids) await recordActivity(tx, id, now);
      });
    } catch (thrown) {
      for (const id of ids) this.#used.add(id);
      this.#ctx.report('activity not written', { sandboxes: ids.size, error: thrown });
    }
  }
}
