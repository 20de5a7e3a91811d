/** One round of keeping the checkpoints in order: unfinished, unreferenced, expiring, removable, unread. */

import { findCheckpoint } from '../checkpoints/checkpoint.ts';
import {
  announceExpiry,
  giveUp,
  listCollectable,
  listExpired,
  listExpiring,
  listToRemove,
  listToScrub,
  listUnfinished,
  removeBytes,
} from '../checkpoints/retention.ts';
import { verifyCheckpoint } from '../checkpoints/soundness.ts';
import type { Context } from '../context.ts';
import { inPages } from './pages.ts';

export async function collect(ctx: Context): Promise<void> {
  const { db, clock, settings } = ctx;
  const { pageSize } = settings;
  const each = async <T extends { readonly id: string }>(
    what: string,
    items: AsyncIterable<T> | Iterable<T>,
    act: (item: T) => Promise<unknown>,
  ) => {
    for await (const item of items) {
      await act(item).catch((thrown: unknown) =>
        ctx.report(`${what} failed`, { id: item.id, error: thrown }),
      );
    }
  };

  const unfinished = inPages(
    (after, limit) => listUnfinished(db, clock.now(), settings.operationMs, after, limit),
    pageSize,
  );
  await each('giving up an unfinished checkpoint', unfinished, (c) => giveUp(ctx, c.id, 'unfinished'));

  const expiring = await listExpiring(db, clock.now() + settings.expiryNoticeMs, pageSize);
  const expired = await listExpired(db, clock.now(), pageSize);
  await each('announcing an expiry', expiring, (c) => announceExpiry(ctx, c));
  await each('expiring a checkpoint', expired, (c) => giveUp(ctx, c.id, 'expired'));

  const collectable = inPages(
    (after, limit) => listCollectable(db, settings.keepPrevious, after, limit),
    pageSize,
  );
  await each('collecting a checkpoint', collectable, (c) => giveUp(ctx, c.id, 'unreferenced'));

  const removable = inPages((after, limit) => listToRemove(db, after, limit), pageSize);
  await each('removing a checkpoint', removable, (c) => removeBytes(ctx, c));
  await sweepStore(ctx);
}

/** Bytes whose row says that they are gone, or that no row explains: what a stale owner wrote too late. */
async function sweepStore(ctx: Context): Promise<void> {
  for await (const stored of ctx.store.list()) {
    const row = await findCheckpoint(ctx.db, stored.id);
    const wanted = row !== undefined && row.state !== 'deleted';
    if (wanted && stored.state !== 'removing') continue;
    if (wanted && row.state === 'sealed') continue;
    await ctx.store
      .remove(stored.id)
      .catch((thrown: unknown) =>
        ctx.report('removing stray bytes failed', { id: stored.id, error: thrown }),
      );
  }
}

/** Reads the contents of a few checkpoints that nobody has read for long. */
export async function scrub(ctx: Context, most: number): Promise<void> {
  const due = await listToScrub(ctx.db, ctx.clock.now() - ctx.settings.scrubEveryMs, most);
  for (const checkpoint of due) await verifyCheckpoint(ctx, checkpoint);
}
