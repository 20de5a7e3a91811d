/**
 * The round that deletes sandboxes which were paused for longer than their policy allows.
 *
 * A deletion is announced first, by an event in the transaction that writes its time. Only announced sandboxes are
 * deleted, and not before the announced time. A resume, or any other change of state, clears the announcement in the
 * transaction of its event. The queries only find candidates; each candidate is checked again under the sandbox's lock.
 */
import { forEachBounded } from '@torpor/host';
import type { EventData } from '@torpor/protocol';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import type { Queryable, Transaction } from '../ports/database.ts';
import { lockSandbox, SANDBOX_COLUMNS, type Sandbox, toSandbox } from '../sandbox.ts';
import { inPages } from '../upkeep/pages.ts';
import { NotDue } from '../upkeep/sweeper.ts';
import { killByPolicy } from '../verbs/kill.ts';
import { keptForMs, retentionOfOrgs } from './policy.ts';

export async function expirePaused(ctx: Context): Promise<void> {
  const { db, settings, stopping } = ctx;
  const { pageSize, hands } = settings;
  const each = (
    what: string,
    list: (db: Queryable, times: Times, after: string, limit: number) => Promise<Sandbox[]>,
    act: (sandbox: Sandbox) => Promise<void>,
  ) =>
    forEachBounded(
      inPages((after, limit) => list(db, timesOf(ctx), after, limit), pageSize, stopping),
      hands,
      (sandbox) =>
        act(sandbox).catch((thrown: unknown) => {
          if (thrown instanceof NotDue) return;
          ctx.report(`${what} failed`, { sandboxId: sandbox.id, error: thrown });
        }),
    );
  await each('withdrawing an expiry', listToWithdraw, (sandbox) => withdrawDeletion(ctx, sandbox));
  await each('announcing an expiry', listToAnnounce, (sandbox) => announceDeletion(ctx, sandbox));
  await each('deleting an expired sandbox', listToDelete, (sandbox) => killExpired(ctx, sandbox));
}

interface Times {
  readonly node: string;
  readonly now: number;
  readonly noticeMs: number;
  /** The server's setting, for sandboxes without a retention of their own or of their organisation. */
  readonly fallbackMs: number;
}

function timesOf({ clock, settings, node }: Context): Times {
  return {
    node: node.name,
    now: clock.now(),
    noticeMs: settings.expiryNoticeMs,
    fallbackMs: settings.deletePausedAfterMs,
  };
}

const COLUMNS = SANDBOX_COLUMNS.split(',')
  .map((column) => `s.${column.trim()}`)
  .join(', ');

/** Paused sandboxes that are due within the notice period and not announced. */
async function listToAnnounce(db: Queryable, times: Times, after: string, limit: number): Promise<Sandbox[]> {
  const kept = keptForMs('$1');
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM sandboxes s
     WHERE s.unused_since IS NOT NULL AND s.deletes_at IS NULL AND s.state = 'paused' AND s.id > $2
       AND ${kept} > 0 AND s.unused_since + ${kept} <= CAST($3 AS {integer})
       AND s.node = $5
     ORDER BY s.id LIMIT $4`,
    [times.fallbackMs, after, times.now + times.noticeMs, limit, times.node],
  );
  return rows.map(toSandbox);
}

/** Announced sandboxes that a changed policy now keeps for longer, or for good. */
async function listToWithdraw(db: Queryable, times: Times, after: string, limit: number): Promise<Sandbox[]> {
  const kept = keptForMs('$1');
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM sandboxes s
     WHERE s.deletes_at IS NOT NULL AND s.id > $2
       AND (${kept} = 0 OR s.unused_since + ${kept} > CAST($3 AS {integer}))
       AND s.node = $5
     ORDER BY s.id LIMIT $4`,
    [times.fallbackMs, after, times.now + times.noticeMs, limit, times.node],
  );
  return rows.map(toSandbox);
}

async function listToDelete(db: Queryable, times: Times, after: string, limit: number): Promise<Sandbox[]> {
  const rows = await db.query(
    `SELECT ${COLUMNS} FROM sandboxes s
     WHERE s.deletes_at IS NOT NULL AND s.deletes_at <= $1 AND s.state = 'paused' AND s.id > $2 AND s.node = $4
     ORDER BY s.id LIMIT $3`,
    [times.now, after, limit, times.node],
  );
  return rows.map(toSandbox);
}

/** When the current policy deletes the sandbox; undefined when it does not. */
async function dueAt(ctx: Context, tx: Transaction, sandbox: Sandbox): Promise<number | undefined> {
  if (sandbox.state !== 'paused' || sandbox.unusedSince === null) return undefined;
  const ofOrg = await retentionOfOrgs(tx, [sandbox.org], ctx.settings.deletePausedAfterMs);
  const kept = sandbox.deletePausedAfterMs ?? ofOrg(sandbox.org);
  return kept === 0 ? undefined : sandbox.unusedSince + kept;
}

async function announceDeletion(ctx: Context, { id }: Sandbox): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    const due = await dueAt(ctx, tx, sandbox);
    const soonest = ctx.clock.now() + ctx.settings.expiryNoticeMs;
    if (due === undefined || due > soonest || sandbox.deletesAt !== null) return;
    const { unusedSince } = sandbox;
    await setDeletion(ctx, tx, sandbox, soonest, 'sandbox.expiring', { deletesAt: soonest, unusedSince });
  });
}

async function withdrawDeletion(ctx: Context, { id }: Sandbox): Promise<void> {
  await ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandbox(tx, id);
    const due = await dueAt(ctx, tx, sandbox);
    const stillDue = due !== undefined && due <= ctx.clock.now() + ctx.settings.expiryNoticeMs;
    if (stillDue || sandbox.deletesAt === null) return;
    const data = { deletesAt: sandbox.deletesAt };
    await setDeletion(ctx, tx, sandbox, null, 'sandbox.expiry_withdrawn', data);
  });
}

async function setDeletion<T extends 'sandbox.expiring' | 'sandbox.expiry_withdrawn'>(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  deletesAt: number | null,
  event: T,
  data: EventData<T>,
): Promise<void> {
  await tx.query('UPDATE sandboxes SET deletes_at = $2 WHERE id = $1', [sandbox.id, deletesAt]);
  await recordEvent(ctx, tx, sandbox, event, data, { operationId: null });
}

/** Does not supersede an operation under way: the next round tries again. */
async function killExpired(ctx: Context, expired: Sandbox): Promise<void> {
  await killByPolicy(ctx, expired, 'expired', async (tx, sandbox) => {
    const now = ctx.clock.now();
    const due = await dueAt(ctx, tx, sandbox);
    if (due === undefined || due > now) throw new NotDue();
    if (sandbox.deletesAt === null || sandbox.deletesAt > now) throw new NotDue();
  });
}
