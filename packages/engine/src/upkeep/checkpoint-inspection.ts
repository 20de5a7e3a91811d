/**
 * Inspects the presence and sizes of sealed checkpoints, so that a missing checkpoint is known before a start needs it,
 * and a checkpoint that is back is known to be back. Contents are read by the scrubber.
 */
import { forEachBounded } from '@torpor/host';
import type { CheckpointId, SandboxId, SandboxState } from '@torpor/protocol';
import { proofOfLoss } from '../acts/loss.ts';
import {
  CHECKPOINT_COLUMNS,
  type Checkpoint,
  findCheckpoint,
  listSealed,
  toCheckpoint,
} from '../checkpoints/checkpoint.ts';
import { checkParts, type PartsCheck } from '../checkpoints/checks.ts';
import { provesDamage, recordChecks } from '../checkpoints/health-record.ts';
import type { Context } from '../context.ts';
import type { Queryable } from '../ports/database.ts';
import { isReplicated } from '../replication/fetch.ts';
import { findSandbox, getSandbox } from '../sandbox.ts';
import { inPages } from './pages.ts';

/** What a round of inspections found. */
export interface InspectionResult {
  inspected: number;
  damaged: number;
  unknown: number;
  /** Undamaged memory that cannot be restored here: a start uses the files. */
  readonly unusableMemory: UnusableMemory[];
}

interface UnusableMemory {
  readonly checkpointId: CheckpointId;
  /** Null for the checkpoint of a template. */
  readonly sandboxId: SandboxId | null;
  readonly why: string;
}

export interface InspectionFilter {
  /** Absent: all organisations. */
  readonly org?: string;
  /** Whether providers are asked about the checkpoints that they keep, and the store about those that only it has. */
  readonly external: boolean;
  /** No caller waits: the inspection of checkpoints with many files must leave the disk to others. */
  readonly background?: boolean;
}

/** Reads rows in pages and inspects few checkpoints at once; `signal` stops it between two checkpoints. */
export async function inspectCheckpoints(
  ctx: Context,
  filter: InspectionFilter,
  signal: AbortSignal,
): Promise<InspectionResult> {
  const { pageSize, inspectHands } = ctx.settings;
  const result: InspectionResult = { inspected: 0, damaged: 0, unknown: 0, unusableMemory: [] };
  const sealed = inPages(
    (after, limit) => listSealed(ctx.db, ctx.node.name, filter.org, after, limit),
    pageSize,
    signal,
  );
  await forEachBounded(sealed, inspectHands, async (checkpoint) => {
    if (!filter.external && (checkpoint.external || (await isOnlyInStore(ctx, checkpoint)))) return;
    // A server that has the runtime inspects it.
    if (!ctx.runtimes.has(checkpoint.runtime)) return;
    const began = ctx.clock.monotonic();
    await inspectOne(ctx, checkpoint, result).catch((thrown: unknown) =>
      ctx.report('inspecting a checkpoint failed', { checkpointId: checkpoint.id, error: thrown }),
    );
    if (filter.background === true) await limitLoad(ctx, ctx.clock.monotonic() - began, signal);
  });
  return result;
}

/** Then each inspection is several requests to the store. */
async function isOnlyInStore({ store }: Context, checkpoint: Checkpoint): Promise<boolean> {
  return isReplicated(checkpoint) && !(await store.has(checkpoint.id));
}

async function limitLoad({ clock, settings }: Context, worked: number, signal: AbortSignal): Promise<void> {
  await clock.sleep(worked * (100 / settings.inspectLoadPercent - 1), signal).catch(() => {});
}

async function inspectOne(ctx: Context, checkpoint: Checkpoint, result: InspectionResult): Promise<void> {
  const { checks, unusableMemory: why } = await inspectCheckpoint(ctx, checkpoint);
  result.inspected++;
  const { id: checkpointId, sandboxId } = checkpoint;
  if (why !== null) result.unusableMemory.push({ checkpointId, sandboxId, why });
  if (checks.some(({ error }) => provesDamage(error))) result.damaged++;
  else if (checks.some(({ error }) => error !== null)) result.unknown++;
}

/** Records what is found. Nothing is found about a checkpoint that a start consumes. */
async function inspectCheckpoint(ctx: Context, checkpoint: Checkpoint): Promise<PartsCheck> {
  const found = await checkParts(ctx, checkpoint);
  const isDamaged = found.checks.some(({ error }) => provesDamage(error));
  if (isDamaged && (await isBeingConsumed(ctx, checkpoint))) return { checks: [], unusableMemory: null };
  await recordChecks(ctx, checkpoint, found.checks);
  return found;
}

/** Whether the sandbox could be started from any checkpoint of its own. Yes, unless all are proved unusable, which is recorded. */
export async function hasUsableCheckpoint(ctx: Context, org: string, id: SandboxId): Promise<boolean> {
  const sandbox = await getSandbox(ctx.db, id, org);
  if ((await proofOfLoss(ctx, sandbox)) === undefined) return true;
  // A start that has begun meanwhile may consume the checkpoint.
  if ((await getSandbox(ctx.db, id, org)).generation !== sandbox.generation) return true;
  const attached =
    sandbox.checkpointId === null ? undefined : await findCheckpoint(ctx.db, sandbox.checkpointId);
  if (attached !== undefined) await inspectCheckpoint(ctx, attached);
  return false;
}

/** A start may consume a checkpoint that a provider keeps, and records that when it is done. */
async function isBeingConsumed(ctx: Context, { replayable, sandboxId }: Checkpoint): Promise<boolean> {
  if (replayable || sandboxId === null) return false;
  return (await findSandbox(ctx.db, sandboxId))?.state !== 'paused';
}

/** An unhealthy checkpoint, and the state of its sandbox. */
export interface UnhealthyCheckpoint {
  readonly checkpoint: Checkpoint;
  readonly sandboxState: SandboxState | null;
}

/** One page of an organisation's unhealthy checkpoints, by id. */
export async function listUnhealthy(
  db: Queryable,
  org: string,
  after: string,
  limit: number,
): Promise<UnhealthyCheckpoint[]> {
  const rows = await db.query(
    `SELECT ${CHECKPOINT_COLUMNS},
       (SELECT s.state FROM sandboxes s WHERE s.id = checkpoints.sandbox_id) AS sandbox_state
     FROM checkpoints WHERE org = $1 AND state = 'sealed' AND health <> 'ok' AND id > $2 ORDER BY id LIMIT $3`,
    [org, after, limit],
  );
  return rows.map((row) => ({
    checkpoint: toCheckpoint(row),
    sandboxState: row['sandbox_state'] as SandboxState | null,
  }));
}

/** How many sealed checkpoints are unhealthy, by kind. */
export interface HealthCounts {
  readonly damaged: number;
  readonly missing: number;
  readonly unknown: number;
}

/** Reads only unhealthy checkpoints, by the index `checkpoints_unhealthy`. */
export async function countUnhealthy(db: Queryable): Promise<HealthCounts> {
  const rows = await db.query<{ health: 'damaged' | 'unknown'; files_missing: number; count: number }>(
    `SELECT health, files_missing, CAST(COUNT(*) AS {integer}) AS count FROM checkpoints
     WHERE state = 'sealed' AND health <> 'ok' GROUP BY health, files_missing`,
  );
  const counts = { damaged: 0, missing: 0, unknown: 0 };
  for (const { health, files_missing: isMissing, count } of rows) {
    counts[isMissing === 1 ? 'missing' : health] += count;
  }
  return counts;
}
