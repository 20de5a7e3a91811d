/** Operations as callers see them. */
import {
  type OperationId,
  type OperationView,
  type Page,
  pageOf,
  type SandboxId,
  TorporError,
} from '@torpor/protocol';
import type { Context } from '../context.ts';
import { findOperation, listOperations, type Operation, phasesOf } from '../operations/operation.ts';
import { viewOperation } from '../view.ts';
import { badCursor } from './bad-cursor.ts';

export async function operation(ctx: Context, org: string, id: OperationId): Promise<OperationView> {
  const found = await findOperation(ctx.db, id);
  if (found === undefined || found.org !== org) {
    throw new TorporError('not_found', `There is no operation ${id}.`, { operationId: id });
  }
  return withPhases(ctx, found);
}

export async function withPhases(ctx: Context, found: Operation): Promise<OperationView> {
  return viewOperation(found, await phasesOf(ctx.db, found));
}

/** Newest first. */
export async function operations(
  ctx: Context,
  org: string,
  sandboxId: SandboxId | undefined,
  before: OperationId | undefined,
  limit: number,
): Promise<Page<OperationView>> {
  const last = before === undefined ? undefined : await findOperation(ctx.db, before);
  if (before !== undefined && last?.org !== org) throw badCursor(before);
  const found = await listOperations(ctx.db, org, sandboxId, last, limit + 1);
  const { items, nextCursor } = pageOf(found, limit, ({ id }) => id);
  return { items: await Promise.all(items.map((each) => withPhases(ctx, each))), nextCursor };
}
