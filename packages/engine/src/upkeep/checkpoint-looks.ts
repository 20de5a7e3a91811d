/**
 * Looks at the presence and sizes of sealed checkpoints, so that a checkpoint that is gone is known before somebody
 * needs it, and one that is back is known to be back. Contents are the scrubbing's.
 */
import type { SandboxState } from '@torpor/protocol';
import { CHECKPOINT_COLUMNS, type Checkpoint, listSealed, toCheckpoint } from '../checkpoints/checkpoint.ts';
import { provesDamage, recordChecks } from '../checkpoints/health.ts';
import { checkParts } from '../checkpoints/soundness.ts';
import type { Context } from '../context.ts';
import type { Queryable } from '../ports/database.ts';
import { findSandbox } from '../sandbox.ts';
import { inPages, withHands } from './pages.ts';

/** What a round of looks saw. */
export interface Looks {
  looked: number;
  damaged: number;
  unknown: number;
}

export interface LookFilter {
  /** Absent: of all organisations. */
  readonly org?: string;
  /** Whether providers are asked about what they keep. */
  readonly external: boolean;
  /** Nobody waits for it: checkpoints with many files must not keep the disk from those who do. */
  readonly background?: boolean;
}

/** Paged and with few hands; `signal` ends it between two checkpoints. */
export async function lookAtCheckpoints(
  ctx: Context,
  filter: LookFilter,
  signal: AbortSignal,
): Promise<Looks> {
  const { pageSize, inspectHands } = ctx.settings;
  const looks: Looks = { looked: 0, damaged: 0, unknown: 0 };
  const sealed = inPages((after, limit) => listSealed(ctx.db, filter.org, after, limit), pageSize);
  await withHands(sealed, inspectHands, signal, async (checkpoint) => {
    if (checkpoint.external && !filter.external) return;
    // Another server has its runtime, and looks at it.
    if (!ctx.runtimes.has(checkpoint.runtime)) return;
    const began = ctx.clock.monotonic();
    await look(ctx, checkpoint, looks).catch((thrown: unknown) =>
      ctx.report('looking at a checkpoint failed', { checkpointId: checkpoint.id, error: thrown }),
    );
    if (filter.background === true) await rest(ctx, ctx.clock.monotonic() - began, signal);
  });
  return looks;
}

async function rest({ clock, settings }: Context, worked: number, signal: AbortSignal): Promise<void> {
  await clock.sleep(worked * (100 / settings.inspectLoadPercent - 1), signal).catch(() => {});
}

async function look(ctx: Context, checkpoint: Checkpoint, looks: Looks): Promise<void> {
  const seen = await checkParts(ctx, checkpoint);
  looks.looked++;
  if (seen.some(({ error }) => provesDamage(error))) {
    if (await isBeingUsedUp(ctx, checkpoint)) return;
    looks.damaged++;
  } else if (seen.some(({ error }) => error !== null)) {
    looks.unknown++;
  }
  await recordChecks(ctx, checkpoint, seen);
}

/** A start may use up what a provider keeps, and writes that down when it is done. */
async function isBeingUsedUp(ctx: Context, { replayable, sandboxId }: Checkpoint): Promise<boolean> {
  if (replayable || sandboxId === null) return false;
  return (await findSandbox(ctx.db, sandboxId))?.state !== 'paused';
}

/** A checkpoint that is not well, and the state of the sandbox that it belongs to. */
export interface Unhealthy {
  readonly checkpoint: Checkpoint;
  readonly sandboxState: SandboxState | null;
}

/** One page of an organisation's checkpoints that are not well, by id. */
export async function listUnhealthy(
  db: Queryable,
  org: string,
  after: string,
  limit: number,
): Promise<Unhealthy[]> {
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

/** How many sealed checkpoints are not well, by how. */
export interface HealthCounts {
  readonly damaged: number;
  readonly missing: number;
  readonly unknown: number;
}

/** Reads only what is not well, by an index of its own. */
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
