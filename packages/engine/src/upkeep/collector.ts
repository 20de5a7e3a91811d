/** One round of cleaning up checkpoints: unfinished, expired, unreferenced and removable ones, and stray bytes. */

import type { CheckpointId } from '@torpor/protocol';
import { lookInStore, verifyCheckpoint } from '../checkpoints/checks.ts';
import {
  announceExpiry,
  deleteIfUnreferenced,
  listCollectable,
  listExpired,
  listExpiring,
  listToRemove,
  listToScrub,
  listUnfinished,
  removeBytes,
} from '../checkpoints/deletion.ts';
import type { Context } from '../context.ts';
import { listPlaceholders } from '../ledger/placeholders.ts';
import type { StoredCheckpoint } from '../ports/checkpoint-store.ts';
import type { Queryable } from '../ports/database.ts';
import { isReplicated } from '../replication/fetch.ts';
import { withTimeout } from '../with-timeout.ts';
import { failAbandonedTemplates } from './abandoned-templates.ts';
import { inPages } from './pages.ts';

export async function collectCheckpoints(ctx: Context): Promise<void> {
  const { db, clock, settings } = ctx;
  const { pageSize } = settings;
  const node = ctx.node.name;
  const each = async <T extends { readonly id: string }>(
    what: string,
    items: AsyncIterable<T> | Iterable<T>,
    act: (item: T) => Promise<unknown>,
  ) => {
    for await (const item of items) {
      if (ctx.stopping.aborted) return;
      await act(item).catch((thrown: unknown) =>
        ctx.report(`${what} failed`, { id: item.id, error: thrown }),
      );
    }
  };

  await failAbandonedTemplates(ctx).catch((thrown: unknown) =>
    ctx.report('failing abandoned templates failed', { error: thrown }),
  );
  const unfinished = inPages(
    (after, limit) => listUnfinished(db, node, clock.now(), settings.operationMs, after, limit),
    pageSize,
  );
  await each('giving up an unfinished checkpoint', unfinished, (c) =>
    deleteIfUnreferenced(ctx, c.id, 'unfinished'),
  );

  const expiring = await listExpiring(db, node, clock.now() + settings.expiryNoticeMs, pageSize);
  const expired = await listExpired(db, node, clock.now(), pageSize);
  await each('announcing an expiry', expiring, (c) => announceExpiry(ctx, c));
  await each('expiring a checkpoint', expired, (c) => deleteIfUnreferenced(ctx, c.id, 'expired'));

  // A checkpoint that others stand on becomes collectable when the last of them is deleted.
  for (let isDone = false; !isDone && !ctx.stopping.aborted; ) {
    isDone = true;
    const collectable = inPages(
      (after, limit) => listCollectable(db, node, settings.keepPrevious, after, limit),
      pageSize,
    );
    await each('collecting a checkpoint', collectable, async (c) => {
      if (await deleteIfUnreferenced(ctx, c.id, 'unreferenced')) isDone = false;
    });
  }

  const removable = inPages((after, limit) => listToRemove(db, node, after, limit), pageSize);
  await each('removing a checkpoint', removable, (c) => removeBytes(ctx, c));
  await removeStrayBytes(ctx);
}

/** Removes bytes whose row is deleted or missing: a stale owner wrote them too late. */
async function removeStrayBytes(ctx: Context): Promise<void> {
  const { callMs, pageSize } = ctx.settings;
  const stored: StoredCheckpoint[] = [];
  await withTimeout(ctx.clock, callMs, 'Listing the store', async () => {
    for await (const one of ctx.store.list()) stored.push(one);
  });
  for (let i = 0; i < stored.length && !ctx.stopping.aborted; i += pageSize) {
    const some = stored.slice(i, i + pageSize);
    const wanted = await listWanted(ctx.db, some);
    for (const { id, state } of some) {
      if (wanted.get(id) === 'sealed' || (wanted.has(id) && state !== 'removing')) continue;
      await withTimeout(ctx.clock, callMs, 'Removing stray bytes', () => ctx.store.remove(id)).catch(
        (thrown: unknown) => ctx.report('removing stray bytes failed', { id, error: thrown }),
      );
    }
  }
}

/** The states of the stored checkpoints that have a row which is not deleted. */
async function listWanted(
  db: Queryable,
  stored: readonly StoredCheckpoint[],
): Promise<Map<CheckpointId, string>> {
  const rows = await db.query<{ id: CheckpointId; state: string }>(
    `SELECT id, state FROM checkpoints WHERE state <> 'deleted' AND id IN (${listPlaceholders(stored.length)})`,
    stored.map(({ id }) => id),
  );
  return new Map(rows.map(({ id, state }) => [id, state]));
}

/** Reads the contents of the few checkpoints that were not read for longest. */
export async function scrubCheckpoints(ctx: Context, most: number): Promise<void> {
  const due = await listToScrub(ctx.db, ctx.node.name, ctx.clock.now() - ctx.settings.scrubEveryMs, most);
  for (const checkpoint of due) {
    const isHere = !isReplicated(checkpoint) || (await ctx.store.has(checkpoint.id));
    await (isHere ? verifyCheckpoint(ctx, checkpoint) : lookInStore(ctx, checkpoint));
  }
}
