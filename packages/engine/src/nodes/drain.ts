/**
 * Drains this node: every running sandbox is sealed with the reason `evacuation`, replicated, and started on another
 * node; the checkpoints of sleeping sandboxes are replicated. Rounds repeat it until nothing is left, so a crash or a
 * failure in between costs only time. A sandbox that no other node can take keeps running here, and the progress says
 * why.
 */
import { forEachBounded } from '@torpor/host';
import { type SandboxId, TorporError } from '@torpor/protocol';
import { parseReplicaError } from '../checkpoints/checkpoint.ts';
import { type Context, isShared } from '../context.ts';
import { findOpenOperation } from '../operations/operation.ts';
import type { NodeAddress } from '../ports/nodes.ts';
import { listSandboxes, lockSandbox, SANDBOX_COLUMNS, type Sandbox, toSandbox } from '../sandbox.ts';
import { inPages } from '../upkeep/pages.ts';
import { NotDue } from '../upkeep/sweeper.ts';
import { pauseByPolicy } from '../verbs/pause.ts';
import { withTimeout } from '../with-timeout.ts';
import { changeNode } from './give-up.ts';
import { type DrainProgress, findNode } from './node.ts';

const MAX_FAILURES = 20;

/** One round; does nothing unless the node is being drained. Returns whether anything is left. */
export async function drainRound(ctx: Context): Promise<boolean> {
  if (!ctx.node.isClustered) return false;
  const node = await findNode(ctx.db, ctx.node.name);
  if (node === undefined || !node.draining || node.drain === null) return false;
  const round = new DrainRound(ctx, node.drain);
  await round.run();
  return round.isUnfinished;
}

class DrainRound {
  readonly #ctx: Context;
  readonly #before: DrainProgress;
  readonly #failures: DrainProgress['failures'][number][] = [];
  #moved = 0;
  #left = 0;
  #storeIsAway = false;

  constructor(ctx: Context, before: DrainProgress) {
    this.#ctx = ctx;
    this.#before = before;
  }

  get isUnfinished(): boolean {
    return this.#left > 0;
  }

  async run(): Promise<void> {
    const { db, node, settings, stopping } = this.#ctx;
    const running = inPages(
      (after, limit) => listSandboxes(db, { node: node.name, states: ['running'] }, after, limit),
      settings.pageSize,
      stopping,
    );
    await forEachBounded(running, settings.hands, (sandbox) =>
      this.#trying(sandbox, () => this.#move(sandbox)),
    );
    // Sandboxes that an earlier round has sealed and could not hand over.
    const waiting = inPages(
      (after, limit) => listEvacuated(db, node.name, after, limit),
      settings.pageSize,
      stopping,
    );
    await forEachBounded(waiting, settings.hands, (sandbox) =>
      this.#trying(sandbox, async () => this.#handOver(sandbox, await this.#placeFor(sandbox))),
    );
    await this.#write();
  }

  async #move(sandbox: Sandbox): Promise<void> {
    if (isShared(this.#ctx, sandbox.runtime)) return this.#giveAway(sandbox, await this.#placeFor(sandbox));
    if (this.#storeIsAway) return;
    await this.#requireStore();
    // The place is chosen before the seal: a sandbox that no node can take keeps running.
    const place = await this.#placeFor(sandbox);
    await pauseByPolicy(this.#ctx, sandbox, {
      reason: 'evacuation',
      guard: (_, locked) => {
        if (locked.state !== 'running' || locked.generation !== sandbox.generation) throw new NotDue();
      },
      filesOnlyFallback: sandbox.config.fallback.includes('files') ? 'on failure' : 'never',
    });
    await this.#handOver(sandbox, place);
  }

  /** Changes the owner of a running instance that every node reaches. */
  async #giveAway({ id, generation }: Sandbox, place: NodeAddress): Promise<void> {
    const { db, node, directory } = this.#ctx;
    await db.transaction(async (tx) => {
      const locked = await lockSandbox(tx, id);
      const isSame =
        locked.state === 'running' && locked.generation === generation && locked.node === node.name;
      if (!isSame || (await findOpenOperation(tx, id)) !== undefined) throw new NotDue();
      await changeNode(tx, id, place.node);
    });
    this.#ctx.jobWatch.end(id);
    directory.refresh();
    this.#moved++;
  }

  /** Throws while the store cannot be used: a sandbox that is sealed then could not leave, so it must keep running. */
  async #requireStore(): Promise<void> {
    const { db, node } = this.#ctx;
    const [failed] = await db.query<{ replica_error: string }>(
      `SELECT replica_error FROM checkpoints
       WHERE node = $1 AND state = 'sealed' AND external = 0 AND replicated_at IS NULL AND replica_error IS NOT NULL LIMIT 1`,
      [node.name],
    );
    if (failed === undefined) return;
    const why = parseReplicaError(failed.replica_error)?.message;
    throw new TorporError('unreachable', `The store cannot be used now: ${why}`);
  }

  async #placeFor({ runtime, memoryMb }: Sandbox): Promise<NodeAddress> {
    const { directory, node } = this.#ctx;
    const place = await directory.place({ runtime, memoryMb: memoryMb ?? 0, except: node.name });
    if (place.is === 'here')
      throw new TorporError('internal', 'A drained node was chosen for its own sandbox.');
    return place;
  }

  async #handOver({ id, org }: Sandbox, place: NodeAddress): Promise<void> {
    const { db, node, replicator, clock, settings, stopping } = this.#ctx;
    const [row] = await db.query<{ checkpoint_id: `ckpt_${string}` | null }>(
      "SELECT checkpoint_id FROM sandboxes WHERE id = $1 AND node = $2 AND state = 'paused'",
      [id, node.name],
    );
    // The sandbox was woken meanwhile, here or on another node: the next round looks again.
    if (row === undefined || row.checkpoint_id === null) return;
    const bound = new AbortController();
    clock.sleep(settings.operationMs, bound.signal).then(
      () => bound.abort(),
      () => {},
    );
    const durability = await replicator?.wait(row.checkpoint_id, AbortSignal.any([bound.signal, stopping]));
    bound.abort();
    if (durability?.replicated !== true) {
      // Every other sandbox would be sealed and could not leave either.
      this.#storeIsAway = true;
      throw new TorporError(
        'unreachable',
        `Its checkpoint is not replicated: ${durability?.reason ?? 'there is no store'}`,
      );
    }
    // The machine of the other node may die without closing the connection. Then no answer ever comes.
    await withTimeout(
      clock,
      settings.operationMs,
      `Handing over to ${place.node}`,
      async (signal) => node.cluster?.handOver?.(place, { id, org }, signal),
      stopping,
    );
    this.#moved++;
  }

  async #trying(sandbox: Sandbox, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (thrown) {
      if (thrown instanceof NotDue) return;
      const why = TorporError.from(thrown).message;
      this.#ctx.report('moving a sandbox to another node failed', { sandboxId: sandbox.id, error: thrown });
      if (this.#failures.length < MAX_FAILURES) this.#failures.push({ sandboxId: sandbox.id, why });
    }
  }

  async #write(): Promise<void> {
    const { db, node, directory } = this.#ctx;
    const { busy, unreplicated, replicated } = await countLeft(
      db,
      node.name,
      node.cluster?.handOver !== undefined,
    );
    this.#left = busy + unreplicated;
    await db.transaction(async (tx) => {
      const now = (await findNode(tx, node.name))?.readAt ?? 0;
      const progress: DrainProgress = {
        ...this.#before,
        endedAt: this.#left > 0 ? null : (this.#before.endedAt ?? now),
        moved: this.#before.moved + this.#moved,
        replicated,
        left: this.#left,
        failures: this.#failures,
      };
      await tx.query('UPDATE nodes SET drain = $2 WHERE name = $1 AND draining = 1', [
        node.name,
        JSON.stringify(progress),
      ]);
    });
    directory.refresh();
  }
}

/** The last operation of the sandbox was the pause of a drain: no caller has paused or woken it since. */
const EVACUATED = `EXISTS (SELECT 1 FROM operations o WHERE o.sandbox_id = s.id AND o.kind = 'pause'
    AND o.reason = 'evacuation' AND o.outcome = 'succeeded'
    AND NOT EXISTS (SELECT 1 FROM operations later WHERE later.sandbox_id = s.id AND later.started_at > o.started_at))`;

async function listEvacuated(
  db: Context['db'],
  node: string,
  after: string,
  limit: number,
): Promise<(Sandbox & { readonly id: SandboxId })[]> {
  const columns = SANDBOX_COLUMNS.split(',').map((column) => `s.${column.trim()}`);
  const rows = await db.query(
    `SELECT ${columns.join(', ')} FROM sandboxes s
     WHERE s.node = $1 AND s.state = 'paused' AND s.id > $2 AND ${EVACUATED} ORDER BY s.id LIMIT $3`,
    [node, after, limit],
  );
  return rows.map(toSandbox);
}

/**
 * Counts the sandboxes that still have to be moved, those that still have to be replicated, and the replicated ones.
 */
async function countLeft(
  db: Context['db'],
  node: string,
  handsOver: boolean,
): Promise<{ readonly busy: number; readonly unreplicated: number; readonly replicated: number }> {
  const [row] = await db.query<{ busy: number; unreplicated: number; replicated: number }>(
    `SELECT CAST(COALESCE(SUM(CASE WHEN s.state <> 'paused' ${handsOver ? `OR ${EVACUATED}` : ''} THEN 1 ELSE 0 END), 0)
         AS {integer}) AS busy,
       CAST(COALESCE(SUM(CASE WHEN s.state = 'paused' AND c.external = 0 AND c.replicated_at IS NULL THEN 1 ELSE 0 END), 0)
         AS {integer}) AS unreplicated,
       CAST(COALESCE(SUM(CASE WHEN s.state = 'paused' AND c.replicated_at IS NOT NULL THEN 1 ELSE 0 END), 0)
         AS {integer}) AS replicated
     FROM sandboxes s LEFT JOIN checkpoints c ON c.id = s.checkpoint_id
     WHERE s.node = $1 AND s.state NOT IN ('killed', 'failed', 'lost')`,
    [node],
  );
  return row ?? { busy: 0, unreplicated: 0, replicated: 0 };
}
