/**
 * With a store outside this machine, the local disk is a cache of it: when the checkpoints on the disk take more than their
 * bound, those that were not used for longest are evicted. The next start fetches what it needs.
 *
 * A checkpoint is evicted only when the database says that it is replicated and the store has just shown that it has every
 * object. One from which a sandbox runs, is being started or is warm stays, and so does one of a template.
 *
 * The holds are in memory: only this process works on the disk, so a hold need not survive it.
 */
import type { CheckpointId } from '@torpor/protocol';
import { CHECKPOINT_COLUMNS, type Checkpoint, toCheckpoint } from '../checkpoints/checkpoint.ts';
import { type Context, runtimeOf } from '../context.ts';
import { boundOf, thresholdsOf } from '../disk/disk-space.ts';
import { listPlaceholders } from '../ledger/placeholders.ts';
import { recordEvent } from '../ledger/transition.ts';
import type { LocalCopies } from '../ports/checkpoint-store.ts';
import type { Queryable } from '../ports/database.ts';
import { lockSandboxOf } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';
import { provesLoss, replicaFault } from './fetch.ts';
import type { Replicator } from './replicator.ts';

export interface CacheState {
  /** Of the sealed checkpoints and the layers on this machine. */
  readonly bytes: number;
  /** Null: no bound. */
  readonly limitBytes: number | null;
}

export class CheckpointCache {
  /** How many callers need the bytes of each checkpoint. */
  readonly #held = new Map<CheckpointId, number>();
  readonly #evicting = new Map<CheckpointId, Promise<unknown>>();
  #state: CacheState | undefined;

  /** What the last round found. Undefined before the first, and without a store. */
  get state(): CacheState | undefined {
    return this.#state;
  }

  /** Keeps the bytes of the checkpoint on this machine while `work` runs. Waits for an eviction that is under way. */
  async hold<T>(id: CheckpointId, work: () => Promise<T>): Promise<T> {
    while (this.#evicting.has(id)) await this.#evicting.get(id);
    this.#held.set(id, (this.#held.get(id) ?? 0) + 1);
    try {
      return await work();
    } finally {
      const left = (this.#held.get(id) ?? 1) - 1;
      if (left > 0) this.#held.set(id, left);
      else this.#held.delete(id);
    }
  }

  /** Measures the cache, finishes evictions that a crash interrupted, and evicts until the bound is kept. */
  async round(ctx: Context): Promise<void> {
    const { replicator } = ctx;
    if (replicator === undefined) return;
    let copies = await this.#measure(ctx);
    for (const id of copies.leftovers) {
      if (await this.#evictOne(ctx, replicator, id)) copies = await this.#measure(ctx);
    }
    if ((await this.#excess(ctx, copies)) <= 0) return;
    for (const id of await byLastUse(ctx, copies.sealed)) {
      if (ctx.stopping.aborted) return;
      if (!(await this.#evictOne(ctx, replicator, id))) continue;
      copies = await this.#measure(ctx);
      if ((await this.#excess(ctx, copies)) <= 0) return;
    }
  }

  async #measure(ctx: Context): Promise<LocalCopies> {
    const { clock, settings, storeSettings, store, stopping } = ctx;
    const measuring = (signal: AbortSignal) => store.copies(signal);
    const copies = await withTimeout(
      clock,
      settings.callMs,
      'Measuring the checkpoints',
      measuring,
      stopping,
    );
    const { totalBytes } = await store.usage();
    const limit = boundOf(storeSettings.cacheBytes, storeSettings.cachePercent, totalBytes);
    this.#state = { bytes: copies.bytes, limitBytes: limit === 0 ? null : limit };
    return copies;
  }

  /** How many bytes are too many: above the bound, or in the room that creates need on this disk. */
  async #excess({ settings, store }: Context, { bytes }: LocalCopies): Promise<number> {
    const { freeBytes, totalBytes } = await store.usage();
    const limitBytes = this.#state?.limitBytes ?? Number.MAX_SAFE_INTEGER;
    return Math.max(bytes - limitBytes, thresholdsOf(settings, totalBytes).refuseBytes - freeBytes);
  }

  /** Returns whether the checkpoint was evicted. */
  async #evictOne(ctx: Context, replicator: Replicator, id: CheckpointId): Promise<boolean> {
    const checkpoint = await findEvictable(ctx.db, ctx.node.name, id);
    if (checkpoint === undefined || this.#held.has(id) || isWarm(ctx, checkpoint)) return false;
    // Before anything waits for the eviction, because a store may take long to answer.
    const fault = await replicaFault(ctx, checkpoint, ctx.storeSettings.callMs);
    if (fault !== null) {
      ctx.report('a checkpoint stays on the disk, because the store does not show that it has it', {
        checkpointId: id,
        error: fault,
      });
      if (provesLoss(fault)) return false;
      throw fault;
    }
    const bytes = this.#state?.bytes ?? 0;
    const removed = await this.#exclusively(id, async () => {
      // A start may have begun, and ended, meanwhile.
      const again = await findEvictable(ctx.db, ctx.node.name, id);
      if (again === undefined || isWarm(ctx, again)) return false;
      if (ctx.runtimes.has(again.runtime)) await runtimeOf(ctx, again).releasePrepared?.(id);
      await replicator.replicas.evict(id);
      return true;
    });
    if (!removed) return false;
    const { bytes: left } = await this.#measure(ctx);
    await recordEviction(ctx, checkpoint, Math.max(0, bytes - left));
    return true;
  }

  /** Does nothing when the checkpoint is held. Later holds wait until `work` has ended. */
  async #exclusively(id: CheckpointId, work: () => Promise<boolean>): Promise<boolean> {
    if (this.#held.has(id) || this.#evicting.has(id)) return false;
    const done = work();
    const settled = done.catch(() => {});
    this.#evicting.set(id, settled);
    try {
      return await done;
    } finally {
      this.#evicting.delete(id);
    }
  }
}

/** A start would adopt an instance that the runtime keeps for this checkpoint. */
function isWarm(ctx: Context, checkpoint: Checkpoint): boolean {
  const { sandboxId, id, runtime } = checkpoint;
  if (sandboxId === null || !ctx.runtimes.has(runtime)) return false;
  return runtimeOf(ctx, checkpoint).warmth?.(sandboxId, id).warm === true;
}

/** The checkpoint, if the database says that it is replicated and nothing on this node needs its bytes. */
async function findEvictable(db: Queryable, node: string, id: CheckpointId): Promise<Checkpoint | undefined> {
  const [row] = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints c
     WHERE c.id = $1 AND c.state = 'sealed' AND c.external = 0 AND c.replicated_at IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.checkpoint_id = c.id)
       AND NOT EXISTS (
         SELECT 1 FROM sandboxes s
         WHERE s.node = $2 AND s.state NOT IN ('paused', 'killed', 'failed', 'lost')
           AND (s.base_id = c.id OR s.checkpoint_id = c.id)
       )`,
    [id, node],
  );
  return row === undefined ? undefined : toCheckpoint(row);
}

/** Least recently used first. Only those that are sealed and replicated, so that the others need not be looked at. */
async function byLastUse(ctx: Context, ids: readonly CheckpointId[]): Promise<CheckpointId[]> {
  const { pageSize } = ctx.settings;
  const uses: { readonly id: CheckpointId; readonly usedAt: number }[] = [];
  for (let i = 0; i < ids.length; i += pageSize) {
    const some = ids.slice(i, i + pageSize);
    const rows = await ctx.db.query<{ id: CheckpointId }>(
      `SELECT id FROM checkpoints
       WHERE state = 'sealed' AND external = 0 AND replicated_at IS NOT NULL AND id IN (${listPlaceholders(some.length)})`,
      some,
    );
    for (const { id } of rows) uses.push({ id, usedAt: await ctx.store.lastUse(id) });
  }
  return uses.sort((a, b) => a.usedAt - b.usedAt || (a.id < b.id ? -1 : 1)).map(({ id }) => id);
}

async function recordEviction(ctx: Context, { id, sandboxId }: Checkpoint, bytes: number): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandboxOf(tx, sandboxId);
    if (sandbox === undefined) return;
    const data = { checkpointId: id, node: ctx.node.name, freedBytes: bytes };
    await recordEvent(ctx, tx, sandbox, 'checkpoint.evicted', data, { operationId: null });
  });
}
