/** The round that seals running sandboxes in place, as often as each asks for (`checkpointEverySeconds`). */
import { forEachBounded } from '@torpor/host';
import { type SandboxId, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { SANDBOX_COLUMNS, type Sandbox, toSandbox } from '../sandbox.ts';
import { snapshotByPolicy } from '../verbs/snapshot.ts';
import { inPages } from './pages.ts';
import { NotDue } from './sweeper.ts';

/** Each seal freezes the sandbox for a moment and writes to the disk, so few of them run at once. */
const HANDS = 2;
const MAX_BACKOFF_MS = 600_000;

export class PeriodicCheckpoints {
  readonly #ctx: Context;
  /** Sandboxes whose seal failed, and when to try again. */
  readonly #backoffs = new Map<SandboxId, { readonly until: number; readonly waitMs: number }>();
  #running: Promise<void> | undefined;

  constructor(ctx: Context) {
    this.#ctx = ctx;
  }

  /** Never two rounds at once. */
  round(): Promise<void> {
    this.#running ??= this.#round().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #round(): Promise<void> {
    const { db, clock, node, settings, stopping } = this.#ctx;
    const now = clock.now();
    const due = inPages(
      (after, limit) => listDue(db, node.name, now, after, limit),
      settings.pageSize,
      stopping,
    );
    await forEachBounded(due, HANDS, (sandbox) => this.#seal(sandbox));
  }

  async #seal(sandbox: Sandbox): Promise<void> {
    const ctx = this.#ctx;
    const { id, generation } = sandbox;
    const known = this.#backoffs.get(id);
    if (known !== undefined && known.until > ctx.clock.monotonic()) return;
    try {
      await snapshotByPolicy(ctx, sandbox, (_, locked) => {
        if (locked.state !== 'running' || locked.generation !== generation) throw new NotDue();
      });
      this.#backoffs.delete(id);
    } catch (thrown) {
      if (thrown instanceof NotDue) return;
      if (thrown instanceof TorporError && thrown.code === 'transitioning') return;
      const waitMs = Math.min(MAX_BACKOFF_MS, (known?.waitMs ?? 5_000) * 2);
      this.#backoffs.set(id, { until: ctx.clock.monotonic() + waitMs, waitMs });
      ctx.report('a periodic checkpoint failed', { sandboxId: id, error: thrown });
    }
  }
}

/** Read by the index `sandboxes_to_checkpoint`, which has only the sandboxes that ask for it. */
async function listDue(
  db: Context['db'],
  node: string,
  now: number,
  after: string,
  limit: number,
): Promise<Sandbox[]> {
  const columns = SANDBOX_COLUMNS.split(',').map((column) => `s.${column.trim()}`);
  const rows = await db.query(
    `SELECT ${columns.join(', ')} FROM sandboxes s
     WHERE s.checkpoint_every_ms IS NOT NULL AND s.state = 'running' AND s.node = $1 AND s.id > $2
       AND COALESCE((SELECT c.sealed_at FROM checkpoints c WHERE c.id = s.checkpoint_id AND c.generation = s.generation),
         s.started_at) + s.checkpoint_every_ms <= $3
     ORDER BY s.id LIMIT $4`,
    [node, after, now, limit],
  );
  return rows.map(toSandbox);
}
