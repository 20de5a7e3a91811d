/**
 * What a node does when it is back after it was fenced. Every run that was given up meanwhile becomes a `recovered`
 * checkpoint of its sandbox, which is listed and can be forked. The sandbox itself has continued from an earlier
 * checkpoint, and is not touched.
 */

import type { CheckpointId, SandboxId } from '@torpor/protocol';
import { sealInStore } from '../acts/seal.ts';
import { insertWriting, markDeleted, markSealed, type SealResult } from '../checkpoints/checkpoint.ts';
import { stageCheckpoint } from '../checkpoints/stage.ts';
import { type Context, runtimeOf } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import type { Queryable, Transaction } from '../ports/database.ts';
import type { Captured, Instance, Runtime } from '../ports/runtime.ts';
import { findSandbox, lockSandbox, type Sandbox } from '../sandbox.ts';
import { withTimeout } from '../with-timeout.ts';

type FencedRun = {
  readonly sandbox_id: SandboxId;
  readonly generation: number;
  readonly seq: number;
  readonly base_id: CheckpointId | null;
};

/** A run that cannot be sealed now is tried again in the next round. */
export async function keepFencedRuns(ctx: Context): Promise<void> {
  if (!ctx.node.isClustered) return;
  const runs = await ctx.db.query<FencedRun>(
    'SELECT sandbox_id, generation, seq, base_id FROM fenced_runs WHERE node = $1 ORDER BY sandbox_id, generation',
    [ctx.node.name],
  );
  for (const run of runs) {
    if (ctx.stopping.aborted) return;
    await keepRun(ctx, run).catch((error: unknown) =>
      ctx.report('keeping a run of before the fence failed', { sandboxId: run.sandbox_id, error }),
    );
  }
}

/**
 * Moves fenced runs to the present name of their data directory. A run belongs to the data directory that has its
 * files: the directory may come back under another name, and its old name may belong to another directory by now.
 * Part of the transaction that takes the name, before the row of the node is written.
 */
export async function moveFencedRuns(
  tx: Transaction,
  { name, dataDirectoryId, before }: { name: string; dataDirectoryId: string; before: string | undefined },
): Promise<void> {
  if (before !== undefined && before !== dataDirectoryId) {
    await tx.query('UPDATE fenced_runs SET node = $1 WHERE node = $2', [waitingFor(before), name]);
  }
  await tx.query(
    `UPDATE fenced_runs SET node = $1
     WHERE node = $2 OR node IN (SELECT name FROM nodes WHERE data_directory_id = $3 AND forgotten = 1)`,
    [name, waitingFor(dataDirectoryId), dataDirectoryId],
  );
}

/** Stands in the column `node` for a data directory without a name. No node can have such a name. */
function waitingFor(dataDirectoryId: string): string {
  return `(${dataDirectoryId})`;
}

/** Whether a run of this sandbox on this node still has to be sealed. A start on this node would remove it. */
export async function hasFencedRun(db: Queryable, node: string, id: SandboxId): Promise<boolean> {
  const rows = await db.query('SELECT generation FROM fenced_runs WHERE node = $1 AND sandbox_id = $2', [
    node,
    id,
  ]);
  return rows.length > 0;
}

async function keepRun(ctx: Context, run: FencedRun): Promise<void> {
  const sandbox = await findSandbox(ctx.db, run.sandbox_id);
  if (sandbox === undefined) return;
  const runtime = runtimeOf(ctx, sandbox);
  const instance: Instance = { sandboxId: sandbox.id, generation: run.generation };
  const found = await withTimeout(ctx.clock, ctx.settings.observeMs, 'Observing', (signal) =>
    runtime.observe(instance, signal),
  );
  if (found.is === 'unknown') throw new Error(found.why);
  if (found.is === 'gone' && !found.files) return forgetRun(ctx, run);
  const id = await insertRow(ctx, sandbox, run);
  const staged = await withTimeout(ctx.clock, ctx.settings.callMs, 'Keeping a run', async (signal) => {
    const staging = await stageCheckpoint(ctx, id, signal);
    const capturing =
      found.is === 'gone'
        ? runtime.recoverFiles(instance, staging, signal)
        : captureRunning(runtime, instance, staging, signal);
    const origin = { id: sandbox.id, baseId: run.base_id, runtime: sandbox.runtime };
    return sealInStore(ctx, staging, await capturing, origin, signal);
  }).catch(async (thrown: unknown) => {
    await ctx.db.transaction((tx) => markDeleted(tx, id, ctx.clock.now()));
    throw thrown;
  });
  await commit(ctx, sandbox, run, id, staged);
  ctx.replicator?.nudge();
  // Only after the commit: until then the instance is the only copy.
  await withTimeout(ctx.clock, ctx.settings.callMs, 'Destroying', (signal) =>
    runtime.destroy(instance, signal),
  );
}

/** The guard should have ended the instance with the lease. An instance that still runs is sealed with its memory. */
async function captureRunning(
  runtime: Runtime,
  instance: Instance,
  staging: Parameters<Runtime['capture']>[2],
  signal: AbortSignal,
): Promise<Captured> {
  await runtime.freeze(instance, signal);
  return runtime.capture(
    instance,
    runtime.capabilities().pause === 'memory' ? 'memory' : 'files',
    staging,
    signal,
  );
}

async function insertRow(ctx: Context, sandbox: Sandbox, run: FencedRun): Promise<CheckpointId> {
  const id = ctx.ids.next('ckpt');
  const { org, runtime } = sandbox;
  const row = {
    id,
    org,
    runtime,
    sandboxId: sandbox.id,
    generation: run.generation,
    seq: run.seq,
    parentId: run.base_id,
    operationId: null,
    node: ctx.node.name,
  };
  await ctx.db.transaction((tx) => insertWriting(tx, row, ctx.clock.now()));
  return id;
}

/** One transaction: the checkpoint is sealed, the fenced run is removed, and the sandbox gets an event. */
async function commit(
  ctx: Context,
  { id: sandboxId }: Sandbox,
  run: FencedRun,
  checkpointId: CheckpointId,
  sealed: SealResult,
): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, sandboxId);
    await markSealed(
      tx,
      checkpointId,
      sealed,
      { recovered: true, kept: true, expiresAt: null },
      ctx.clock.now(),
    );
    await tx.query('DELETE FROM fenced_runs WHERE sandbox_id = $1 AND generation = $2', [
      sandboxId,
      run.generation,
    ]);
    const { location, bytes } = sealed;
    const { parts } = sealed.captured;
    const data = { checkpointId, node: ctx.node.name, generation: run.generation, location, bytes, parts };
    await recordEvent(ctx, tx, sandbox, 'checkpoint.recovered', data, { operationId: null });
  });
}

async function forgetRun(ctx: Context, run: FencedRun): Promise<void> {
  await ctx.db.transaction((tx) =>
    tx.query('DELETE FROM fenced_runs WHERE sandbox_id = $1 AND generation = $2', [
      run.sandbox_id,
      run.generation,
    ]),
  );
}
