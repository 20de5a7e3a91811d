/** Checkpoints as callers see them. */
import {
  type CheckpointId,
  type CheckpointPage,
  type CheckpointView,
  pageOf,
  type SandboxId,
  type SandboxState,
} from '@torpor/protocol';
import {
  type Checkpoint,
  findCheckpoint,
  getCheckpoint,
  listCheckpoints,
  listNamed,
  namesOf,
} from '../checkpoints/checkpoint.ts';
import { bytesOf } from '../checkpoints/deletion.ts';
import { healthWord } from '../checkpoints/health-record.ts';
import type { Context } from '../context.ts';
import { getSandbox } from '../sandbox.ts';
import { listUnhealthy } from '../upkeep/checkpoint-inspection.ts';
import { viewCheckpoint } from '../view.ts';
import { badCursor } from './bad-cursor.ts';

export async function checkpoint(ctx: Context, org: string, id: CheckpointId): Promise<CheckpointView> {
  return withNames(ctx, await getCheckpoint(ctx.db, id, org));
}

async function withNames(ctx: Context, checkpoint: Checkpoint): Promise<CheckpointView> {
  return viewCheckpoint(checkpoint, await namesOf(ctx.db, checkpoint.id));
}

/** The checkpoints of one sandbox, newest first. */
export async function checkpoints(
  ctx: Context,
  org: string,
  id: SandboxId,
  limit: number,
  before: CheckpointId | null = null,
): Promise<CheckpointPage> {
  await getSandbox(ctx.db, id, org);
  const last = before === null ? undefined : await findCheckpoint(ctx.db, before);
  if (before !== null && last?.sandboxId !== id) throw badCursor(before);
  const found = await listCheckpoints(ctx.db, id, last?.seq ?? null, limit + 1);
  const { items, nextCursor } = pageOf(found, limit, (checkpoint) => checkpoint.id);
  return {
    items: await Promise.all(items.map((checkpoint) => withNames(ctx, checkpoint))),
    nextCursor,
    bytes: await bytesOf(ctx.db, id),
  };
}

/** The checkpoints of an organisation with this name, of any sandbox, newest first. */
export async function namedCheckpoints(
  ctx: Context,
  org: string,
  name: string,
  limit: number,
): Promise<CheckpointView[]> {
  const found = await listNamed(ctx.db, org, name, limit);
  return Promise.all(found.map((checkpoint) => withNames(ctx, checkpoint)));
}

/** For reports about damage. */
interface UnhealthyCheckpoint {
  readonly id: CheckpointId;
  readonly sandboxId: SandboxId | null;
  readonly sandboxState: SandboxState | null;
  readonly health: ReturnType<typeof healthWord>;
  readonly detail: string | null;
}

/** One page of an organisation's unhealthy checkpoints, as the last inspection found them. */
export async function unhealthyCheckpoints(
  ctx: Context,
  org: string,
  after: string,
  limit: number,
): Promise<UnhealthyCheckpoint[]> {
  const found = await listUnhealthy(ctx.db, org, after, limit);
  return found.map(
    ({ checkpoint: { id, sandboxId, faults, health, healthDetail: detail }, sandboxState }) => ({
      id,
      sandboxId,
      sandboxState,
      health: healthWord({ faults, health }),
      detail,
    }),
  );
}
