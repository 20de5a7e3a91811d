/**
 * Gives up the run of a sandbox whose node is away, in one transaction. The sandbox continues from its newest
 * replicated checkpoint. The changes since then are lost, unless the node comes back: then it seals them as a
 * checkpoint of their own.
 */
import { type CheckpointId, isTerminal, type Loss, type SandboxId, TorporError } from '@torpor/protocol';
import {
  CHECKPOINT_COLUMNS,
  type Checkpoint,
  findCheckpoint,
  toCheckpoint,
} from '../checkpoints/checkpoint.ts';
import { type Context, isShared } from '../context.ts';
import { deleteActivity } from '../idleness.ts';
import { jobsAtEnd } from '../jobs/follow.ts';
import { applyTransition, recordEvent } from '../ledger/transition.ts';
import { endOperation, findOpenOperation, type Operation } from '../operations/operation.ts';
import type { Queryable, Transaction } from '../ports/database.ts';
import { lockSandbox, type Sandbox } from '../sandbox.ts';
import type { Node } from './node.ts';

export interface GiveUp {
  readonly dead: Pick<Node, 'name' | 'leaseUntil'>;
  /**
   * For a sandbox without a replicated checkpoint: `leave` keeps its state until the node is back, `lose` makes it
   * lost.
   */
  readonly unreplicated: 'leave' | 'lose';
}

interface Giving extends GiveUp {
  readonly ctx: Context;
  readonly tx: Transaction;
  readonly sandbox: Sandbox;
  readonly open: Operation | undefined;
}

const LOST: Loss[] = ['processes', 'files', 'connections'];

/** The caller has made sure that the node cannot come back before the commit. */
export async function giveUpSandbox(
  ctx: Context,
  tx: Transaction,
  id: SandboxId,
  how: GiveUp,
): Promise<void> {
  const sandbox = await lockSandbox(tx, id);
  if (sandbox.node !== how.dead.name) return;
  if (isTerminal(sandbox.state)) return;
  if (isShared(ctx, sandbox.runtime)) return changeNode(tx, id, ctx.node.name);
  const giving: Giving = { ...how, ctx, tx, sandbox, open: await findOpenOperation(tx, id) };
  switch (sandbox.state) {
    case 'creating':
      return failStart(giving, 'sandbox.failed');
    case 'killing':
      return endKill(giving);
    case 'resuming':
      return (await isReplicated(tx, sandbox.checkpointId))
        ? failStart(giving, 'sandbox.resume_failed')
        : withoutReplica(giving);
    case 'running':
    case 'pausing': {
      const newest = await newestReplicated(tx, id);
      return newest === undefined ? withoutReplica(giving) : goBackTo(giving, newest);
    }
    case 'paused':
      return giveUpPaused(giving);
  }
}

/**
 * Nothing of the sandbox was on the machine of the dead node. An open operation is taken over by the reconciler of its new
 * node, as after a crash of a server.
 */
export async function changeNode(tx: Transaction, id: SandboxId, node: string): Promise<void> {
  await tx.query('UPDATE sandboxes SET node = $2 WHERE id = $1', [id, node]);
}

/** Pauses the sandbox at the checkpoint. */
async function goBackTo(giving: Giving, checkpoint: Checkpoint): Promise<void> {
  const { ctx, tx, sandbox, open } = giving;
  const since = new Date(checkpoint.sealedAt ?? checkpoint.createdAt).toISOString();
  const reason = `${away(giving)}; what it had written since ${since} is not in the store`;
  await keepRun(giving);
  await endOpen(giving, reason);
  await deleteActivity(tx, sandbox.id);
  const jobEvents = await jobsAtEnd(ctx, tx, sandbox, 'crash', open?.id ?? null);
  const data = {
    reason: 'reconcile',
    found: reason,
    previousState: sandbox.state,
    parentId: checkpoint.parentId,
    location: checkpoint.location ?? '',
    bytes: checkpoint.bytes ?? 0,
    parts: checkpoint.parts,
    lost: LOST,
  } as const;
  const change = {
    endsAt: null,
    lost: LOST,
    reason,
    evidence: 'ledger',
    observedAt: ctx.clock.now(),
  } as const;
  const ids = { operationId: open?.id ?? null, checkpointId: checkpoint.id, baseId: checkpoint.id };
  if (sandbox.state === 'paused') {
    await recordEvent(ctx, tx, sandbox, 'sandbox.recovered', data, { ...ids, change, jobEvents });
    return;
  }
  await applyTransition(ctx, tx, sandbox, 'recovered', 'sandbox.recovered', data, {
    ...ids,
    change,
    jobEvents,
  });
}

/** No caller was told that the start succeeded, so nothing is lost. */
async function failStart(giving: Giving, event: 'sandbox.failed' | 'sandbox.resume_failed'): Promise<void> {
  const { ctx, tx, sandbox, open } = giving;
  const message = `${away(giving)} while it started the sandbox`;
  await endOpen(giving, message);
  const reason = event === 'sandbox.failed' ? message : sandbox.reason;
  const change = { reason, endsAt: null, evidence: 'ledger', observedAt: ctx.clock.now() } as const;
  const ids = { operationId: open?.id ?? null, baseId: sandbox.checkpointId };
  const error = { code: 'unreachable', message };
  await applyTransition(ctx, tx, sandbox, 'start_failed', event, { error }, { ...ids, change });
}

/** The node has stopped what it ran before its lease ended, so the instance is gone. */
async function endKill({ ctx, tx, sandbox, open }: Giving): Promise<void> {
  const now = ctx.clock.now();
  await deleteActivity(tx, sandbox.id);
  if (open?.kind === 'kill') await endOperation(tx, open, now, { outcome: 'succeeded', result: {} });
  const change = { endsAt: null, evidence: 'ledger', observedAt: now } as const;
  const operationId = open?.id ?? null;
  const jobEvents = await jobsAtEnd(ctx, tx, sandbox, 'sandbox_killed', operationId);
  const fields = { operationId, baseId: null, checkpointId: null, change, jobEvents };
  await applyTransition(ctx, tx, sandbox, 'destroyed', 'sandbox.killed', {}, fields);
}

/** Only for a forgotten node: a checkpoint that only its disk had is given up with it. */
async function giveUpPaused(giving: Giving): Promise<void> {
  const { ctx, tx, sandbox } = giving;
  if (giving.unreplicated === 'leave') return;
  if (!(await isReplicated(tx, sandbox.checkpointId))) {
    const newest = await newestReplicated(tx, sandbox.id);
    if (newest === undefined) return lose(giving);
    await goBackTo(giving, newest);
  }
  await tx.query('UPDATE sandboxes SET node = $2 WHERE id = $1', [sandbox.id, ctx.node.name]);
}

/**
 * No other node can observe the sandbox, so its evidence is unknown. Its operation stays open: its own node can still
 * end it.
 */
async function withoutReplica(giving: Giving): Promise<void> {
  if (giving.unreplicated === 'lose') return lose(giving);
  const { ctx, tx, sandbox } = giving;
  if (sandbox.evidence === 'unknown') return;
  await tx.query("UPDATE sandboxes SET evidence = 'unknown', observed_at = $2, reason = $3 WHERE id = $1", [
    sandbox.id,
    ctx.clock.now(),
    `${away(giving)}, and nothing of the sandbox is in the store`,
  ]);
}

async function lose(giving: Giving): Promise<void> {
  const { ctx, tx, sandbox, open } = giving;
  const reason = `${away(giving)} and was forgotten, and nothing of the sandbox is in the store`;
  await keepRun(giving);
  await endOpen(giving, reason);
  await deleteActivity(tx, sandbox.id);
  const known = { evidence: 'ledger', observedAt: ctx.clock.now() } as const;
  const change = { reason, lost: ['processes', 'files'] as const, endsAt: null, ...known };
  const operationId = open?.id ?? null;
  const jobEvents = await jobsAtEnd(ctx, tx, sandbox, 'sandbox_lost', operationId);
  const fields = { operationId, baseId: null, checkpointId: null, change, jobEvents };
  const data = { reason, previousState: sandbox.state };
  await applyTransition(ctx, tx, sandbox, 'lost', 'sandbox.lost', data, fields);
}

/** Records the run for its node, which seals what is left of it when it is back. */
async function keepRun({ ctx, tx, sandbox, dead }: Giving): Promise<void> {
  if (sandbox.state !== 'running' && sandbox.state !== 'pausing') return;
  await tx.query(
    `INSERT INTO fenced_runs (sandbox_id, generation, node, seq, base_id, fenced_at) VALUES ($1, $2, $3, $4, $5, $6)
     ON CONFLICT (sandbox_id, generation) DO NOTHING`,
    [sandbox.id, sandbox.generation, dead.name, sandbox.seq, sandbox.baseId, ctx.clock.now()],
  );
}

/** The checkpoint that the operation was writing is given up with it: the collector of its node finds the row. */
async function endOpen({ ctx, tx, open, sandbox, dead }: Giving, why: string): Promise<void> {
  if (open === undefined) return;
  const error = new TorporError('unreachable', `${why}.`, {
    sandboxId: sandbox.id,
    details: { node: dead.name },
  });
  await endOperation(tx, open, ctx.clock.now(), { outcome: 'failed', error });
}

function away({ dead }: Giving): string {
  return `The node "${dead.name}" has not answered since ${new Date(dead.leaseUntil).toISOString()}`;
}

async function isReplicated(db: Queryable, id: CheckpointId | null): Promise<boolean> {
  const checkpoint = id === null ? undefined : await findCheckpoint(db, id);
  return checkpoint !== undefined && (checkpoint.external || checkpoint.replicatedAt !== null);
}

/** The newest checkpoint of the sandbox that other nodes can start from. */
async function newestReplicated(db: Queryable, id: SandboxId): Promise<Checkpoint | undefined> {
  const [row] = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS} FROM checkpoints
     WHERE sandbox_id = $1 AND state = 'sealed' AND replicated_at IS NOT NULL ORDER BY seq DESC LIMIT 1`,
    [id],
  );
  return row === undefined ? undefined : toCheckpoint(row);
}
