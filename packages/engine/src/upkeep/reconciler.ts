/**
 * Desired against observed, at start and from time to time. Everything is recomputed from what is there,
 * so nothing of this needs to survive a crash. What cannot be observed is unknown, never gone; every
 * repair is an event that says what was found.
 */
import type { SandboxId } from '@torpor/protocol';
import { observe } from '../acts/observe.ts';
import { repair } from '../acts/repair.ts';
import type { Context } from '../context.ts';
import { compareJobs } from '../jobs/compare.ts';
import { findOpenOperation, insertOperation, listOrphaned } from '../operations/operation.ts';
import type { Instance, Runtime } from '../ports/runtime.ts';
import { findSandbox, listSandboxes, lockSandbox, type Sandbox } from '../sandbox.ts';
import { killByPolicy } from '../verbs/kill.ts';
import { within } from '../within.ts';
import { inPages, withHands } from './pages.ts';
import { takeUp } from './take-up.ts';

/** What a round did, for metrics and for `fsck`. */
export interface Round {
  takenUp: number;
  repaired: number;
  unknown: number;
  failed: number;
  /** What was done, one by one; a bounded number of them. */
  readonly did: Deed[];
}

interface Deed {
  readonly sandboxId: SandboxId;
  /** Null when no sandbox is known by that id. */
  readonly org: string | null;
  readonly what: string;
}

const MOST_DEEDS = 1_000;

function record(round: Round, deed: Deed): void {
  if (round.did.length < MOST_DEEDS) round.did.push(deed);
}

export async function reconcile(ctx: Context): Promise<Round> {
  const round: Round = { takenUp: 0, repaired: 0, unknown: 0, failed: 0, did: [] };
  await takeUpOrphans(ctx, round);
  await compareSandboxes(ctx, round);
  for (const runtime of ctx.runtimes.values()) await destroyStrays(ctx, runtime, round);
  return round;
}

/** Finishes or rolls back every operation whose server is gone, or that this server had to let go of. */
async function takeUpOrphans(ctx: Context, round: Round): Promise<void> {
  const server = { id: ctx.serverId, leaseMs: ctx.settings.serverLeaseMs };
  const orphans = inPages(
    (after, limit) => listOrphaned(ctx.db, ctx.clock.now(), server, after, limit),
    ctx.settings.pageSize,
  );
  await withHands(orphans, ctx.settings.hands, ctx.stopping, async (operation) => {
    if (ctx.operations.isDriving(operation.id)) return;
    await guarded(ctx, round, operation.sandboxId, async () => {
      await takeUp(ctx, operation);
      round.takenUp++;
      record(round, { ...operation, what: `took up its ${operation.kind}, which nobody drove any more` });
      // What it ended as is the operation's own to say; here it only matters that it has.
      await ctx.operations.finished(operation.id, ctx.stopping).catch(() => {});
    });
  });
}

async function compareSandboxes(ctx: Context, round: Round): Promise<void> {
  // A paused sandbox's leftovers are found by listing what the runtime has, not by asking for each.
  const states = ['running', 'killing'] as const;
  const live = inPages(
    (after, limit) => listSandboxes(ctx.db, { states }, after, limit),
    ctx.settings.pageSize,
  );
  await withHands(live, ctx.settings.hands, ctx.stopping, (sandbox) =>
    guarded(ctx, round, sandbox.id, () => compare(ctx, sandbox, round)),
  );
}

/** The same for one sandbox, outside of a round. */
export async function compareNow(ctx: Context, sandbox: Sandbox): Promise<void> {
  await compare(ctx, sandbox, { takenUp: 0, repaired: 0, unknown: 0, failed: 0, did: [] });
}

async function compare(ctx: Context, sandbox: Sandbox, round: Round): Promise<void> {
  if ((await findOpenOperation(ctx.db, sandbox.id)) !== undefined) return;
  if (sandbox.state === 'killing') {
    await killByPolicy(ctx, sandbox, 'reconcile');
    round.repaired++;
    record(round, { sandboxId: sandbox.id, org: sandbox.org, what: 'finished killing it' });
    return;
  }
  const found = await observe(ctx, sandbox);
  if (found.is === 'unknown') {
    round.unknown++;
    await seen(ctx, sandbox, 'unknown');
  } else if (found.is === 'running') {
    await seen(ctx, sandbox, 'running');
    await compareJobsOf(ctx, sandbox, round);
  } else {
    await repairByOperation(ctx, sandbox);
    round.repaired++;
    record(round, {
      sandboxId: sandbox.id,
      org: sandbox.org,
      what: `it was seen ${found.is}, and was repaired`,
    });
  }
}

/** Jobs whose processes have ended, and processes that ought to be jobs. */
async function compareJobsOf(ctx: Context, sandbox: Sandbox, round: Round): Promise<void> {
  try {
    const { changed, hasRunning } = await compareJobs(ctx, sandbox);
    for (const { id, state } of changed) {
      round.repaired++;
      record(round, { sandboxId: sandbox.id, org: sandbox.org, what: `its job ${id} was found ${state}` });
    }
    if (hasRunning && !ctx.jobWatch.isWatching(sandbox.id)) ctx.jobWatch.begin(sandbox.id);
  } catch (thrown) {
    // An agent that cannot be asked says nothing about its processes.
    ctx.report('comparing jobs failed', { sandboxId: sandbox.id, error: thrown });
  }
}

/** Only news is written: a hundred thousand sandboxes that are well cost no writes. */
async function seen(ctx: Context, sandbox: Sandbox, evidence: 'running' | 'unknown'): Promise<void> {
  const stale = ctx.clock.now() - sandbox.observedAt > 10 * ctx.settings.reconcileEveryMs;
  if (sandbox.evidence === evidence && !stale) return;
  await ctx.db.transaction((tx) =>
    tx.query('UPDATE sandboxes SET evidence = $3, observed_at = $4 WHERE id = $1 AND seq = $2', [
      sandbox.id,
      sandbox.seq,
      evidence,
      ctx.clock.now(),
    ]),
  );
}

/** Opens an operation for what needs repair, unless somebody has begun something since it was seen. */
async function repairByOperation(ctx: Context, sandbox: Sandbox): Promise<void> {
  const caller = { org: sandbox.org };
  const operation = ctx.operations.draft({
    kind: 'recover',
    sandboxId: sandbox.id,
    caller,
    request: {},
    reason: 'reconcile',
  });
  const claimed = await ctx.db.transaction(async (tx) => {
    const locked = await lockSandbox(tx, sandbox.id);
    const same = locked.state === 'running' && locked.generation === sandbox.generation;
    if (!same || (await findOpenOperation(tx, sandbox.id)) !== undefined) return undefined;
    await insertOperation(tx, operation);
    return locked;
  });
  if (claimed === undefined) return;
  ctx.operations.drive(operation, (handle) => repair(ctx, handle, claimed));
  await ctx.operations.finished(operation.id, ctx.stopping);
}

/**
 * Instances that no sandbox owns. What the runtime has is read first and the rows after it: a row is
 * written before its instance is made, so an instance without a row has no owner that is yet to come.
 */
async function destroyStrays(ctx: Context, runtime: Runtime, round: Round): Promise<void> {
  const instances: Instance[] = [];
  await guarded(ctx, round, undefined, () =>
    within(ctx.clock, ctx.settings.callMs, 'Listing instances', async (signal) => {
      for await (const instance of runtime.list(signal)) instances.push(instance);
    }),
  );
  for (const instance of instances) {
    if (ctx.stopping.aborted) return;
    await guarded(ctx, round, instance.sandboxId, async () => {
      const sandbox = await findSandbox(ctx.db, instance.sandboxId);
      const upTo = strayUpTo(sandbox, instance);
      if (upTo === null) return;
      await within(ctx.clock, ctx.settings.callMs, 'Destroying a stray', (signal) =>
        runtime.destroy({ sandboxId: instance.sandboxId, generation: upTo }, signal),
      );
      round.repaired++;
      const what = `cleared what ${runtime.name} had of generation ${instance.generation}, which nobody owned`;
      record(round, { sandboxId: instance.sandboxId, org: sandbox?.org ?? null, what });
    });
  }
}

/** The newest generation of this sandbox that may be destroyed, or null when the instance is the living one. */
function strayUpTo(sandbox: Sandbox | undefined, instance: Instance): number | null {
  if (sandbox === undefined) return instance.generation;
  const lives = ['creating', 'running', 'pausing', 'resuming', 'killing'].includes(sandbox.state);
  const newestDead = lives ? sandbox.generation - 1 : sandbox.generation;
  return instance.generation <= newestDead ? newestDead : null;
}

/** One bad row never stops a round. */
async function guarded(
  ctx: Context,
  round: Round,
  sandboxId: SandboxId | undefined,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (thrown) {
    round.failed++;
    ctx.report('reconciling failed', { sandboxId, error: thrown });
  }
}
