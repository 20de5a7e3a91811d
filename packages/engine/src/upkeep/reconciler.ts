/**
 * Compares the desired with the observed state, at the start of the server and periodically. Everything is recomputed
 * from what is observed, so no state here has to survive a crash. What cannot be observed is unknown, never gone. Every
 * repair is an event that says what was found.
 */
import { forEachBounded } from '@torpor/host';
import { isTerminal, type SandboxId } from '@torpor/protocol';
import { observe } from '../acts/observe.ts';
import { repair } from '../acts/repair.ts';
import type { Context } from '../context.ts';
import { compareJobs } from '../jobs/compare.ts';
import { hasFencedRun, keepFencedRuns } from '../nodes/recovered-runs.ts';
import { findOpenOperation, insertOperation, listOrphaned } from '../operations/operation.ts';
import type { Instance, Runtime } from '../ports/runtime.ts';
import { findSandbox, listSandboxes, lockSandbox, type Sandbox } from '../sandbox.ts';
import { killByPolicy } from '../verbs/kill.ts';
import { withTimeout } from '../with-timeout.ts';
import { inPages } from './pages.ts';
import { takeOverOperation } from './take-over.ts';

/** What a round did, for metrics and for `fsck`. */
export interface ReconcileRound {
  takenUp: number;
  repaired: number;
  unknown: number;
  failed: number;
  /** The single actions, a bounded number of them. */
  readonly did: RoundAction[];
}

interface RoundAction {
  readonly sandboxId: SandboxId;
  /** Null when there is no sandbox with this id. */
  readonly org: string | null;
  readonly what: string;
}

const MAX_ACTIONS = 1_000;

function record(round: ReconcileRound, deed: RoundAction): void {
  if (round.did.length < MAX_ACTIONS) round.did.push(deed);
}

export async function reconcile(ctx: Context): Promise<ReconcileRound> {
  const round: ReconcileRound = { takenUp: 0, repaired: 0, unknown: 0, failed: 0, did: [] };
  await keepFencedRuns(ctx);
  await takeOverOrphans(ctx, round);
  await compareSandboxes(ctx, round);
  for (const runtime of ctx.runtimes.values()) await destroyStrays(ctx, runtime, round);
  return round;
}

/** Finishes or undoes every operation whose server is gone, or that this server had to leave open. */
async function takeOverOrphans(ctx: Context, round: ReconcileRound): Promise<void> {
  const server = { id: ctx.serverId, node: ctx.node.name, leaseMs: ctx.settings.serverLeaseMs };
  const orphans = inPages(
    (after, limit) => listOrphaned(ctx.db, ctx.clock.now(), server, after, limit),
    ctx.settings.pageSize,
    ctx.stopping,
  );
  await forEachBounded(orphans, ctx.settings.hands, async (operation) => {
    if (ctx.operations.isDriving(operation.id)) return;
    await countingFailures(ctx, round, operation.sandboxId, async () => {
      await takeOverOperation(ctx, operation);
      round.takenUp++;
      record(round, { ...operation, what: `took over its ${operation.kind}, which no server was driving` });
      // The outcome is recorded with the operation; here it only matters that the operation has ended.
      await ctx.operations.finished(operation.id, ctx.stopping).catch(() => {});
    });
  });
}

async function compareSandboxes(ctx: Context, round: ReconcileRound): Promise<void> {
  // Leftovers of paused sandboxes are found by listing the runtime's instances, not by observing each sandbox.
  const states = ['running', 'killing'] as const;
  const live = inPages(
    (after, limit) => listSandboxes(ctx.db, { node: ctx.node.name, states }, after, limit),
    ctx.settings.pageSize,
    ctx.stopping,
  );
  await forEachBounded(live, ctx.settings.hands, (sandbox) =>
    countingFailures(ctx, round, sandbox.id, () => compare(ctx, sandbox, round)),
  );
}

/** Compares one sandbox, outside of a round. */
export async function compareSandbox(ctx: Context, sandbox: Sandbox): Promise<void> {
  await compare(ctx, sandbox, { takenUp: 0, repaired: 0, unknown: 0, failed: 0, did: [] });
}

async function compare(ctx: Context, sandbox: Sandbox, round: ReconcileRound): Promise<void> {
  if (sandbox.node !== ctx.node.name) return;
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
    await recordEvidence(ctx, sandbox, 'unknown');
  } else if (found.is === 'running') {
    await recordEvidence(ctx, sandbox, 'running');
    await compareJobsOf(ctx, sandbox, round);
  } else {
    await repairByOperation(ctx, sandbox);
    round.repaired++;
    record(round, {
      sandboxId: sandbox.id,
      org: sandbox.org,
      what: `repaired it: it was found ${found.is}`,
    });
  }
}

/** Ends jobs whose processes have ended, and makes jobs of processes that have none. */
async function compareJobsOf(ctx: Context, sandbox: Sandbox, round: ReconcileRound): Promise<void> {
  try {
    const { changed, hasRunning } = await compareJobs(ctx, sandbox);
    for (const { id, state } of changed) {
      round.repaired++;
      record(round, { sandboxId: sandbox.id, org: sandbox.org, what: `its job ${id} was found ${state}` });
    }
    if (hasRunning && !ctx.jobWatch.isWatching(sandbox.id)) ctx.jobWatch.begin(sandbox.id);
  } catch (thrown) {
    // When the agent does not answer, nothing is concluded about its processes.
    ctx.report('comparing jobs failed', { sandboxId: sandbox.id, error: thrown });
  }
}

/** Writes only changes: a hundred thousand healthy sandboxes cost no writes. */
async function recordEvidence(
  ctx: Context,
  sandbox: Sandbox,
  evidence: 'running' | 'unknown',
): Promise<void> {
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

/** Opens an operation that repairs the sandbox, unless the sandbox has changed or another operation was opened since. */
async function repairByOperation(ctx: Context, sandbox: Sandbox): Promise<void> {
  const caller = { org: sandbox.org };
  const operation = ctx.operations.draft({
    kind: 'recover',
    sandboxId: sandbox.id,
    caller,
    request: {},
    reason: 'reconcile',
  });
  const accepted = await ctx.db.transaction(async (tx) => {
    const locked = await lockSandbox(tx, sandbox.id);
    const same =
      locked.state === 'running' && locked.generation === sandbox.generation && locked.node === ctx.node.name;
    if (!same || (await findOpenOperation(tx, sandbox.id)) !== undefined) return undefined;
    await insertOperation(tx, operation);
    return locked;
  });
  if (accepted === undefined) return;
  ctx.operations.drive(operation, (handle) => repair(ctx, handle, accepted));
  await ctx.operations.finished(operation.id, ctx.stopping);
}

/**
 * Destroys instances that no sandbox owns. An instance that the runtime keeps as a cache is no repair. The runtime's
 * instances are listed before the rows are read: a row is written before its instance is made, so an instance without a
 * row will never get an owner.
 */
async function destroyStrays(ctx: Context, runtime: Runtime, round: ReconcileRound): Promise<void> {
  const instances: Instance[] = [];
  await countingFailures(ctx, round, undefined, () =>
    withTimeout(ctx.clock, ctx.settings.callMs, 'Listing instances', async (signal) => {
      for await (const instance of runtime.list(signal)) instances.push(instance);
    }),
  );
  for (const instance of instances) {
    if (ctx.stopping.aborted) return;
    await countingFailures(ctx, round, instance.sandboxId, async () => {
      const sandbox = await findSandbox(ctx.db, instance.sandboxId);
      const upTo = newestStrayGeneration(ctx, runtime, sandbox, instance);
      if (upTo === null) return;
      // What another node gave up is kept first.
      if (ctx.node.isClustered && (await hasFencedRun(ctx.db, ctx.node.name, instance.sandboxId))) return;
      // The frozen instance of a paused sandbox may stay as a cache: an earlier server may have kept it.
      const isOurs = sandbox?.state === 'paused' && sandbox.node === ctx.node.name;
      const keep = isOurs ? (sandbox.checkpointId ?? undefined) : undefined;
      await withTimeout(ctx.clock, ctx.settings.callMs, 'Destroying a stray', (signal) =>
        runtime.destroy({ sandboxId: instance.sandboxId, generation: upTo }, signal, keep),
      );
      const isKept = keep !== undefined && runtime.warmth?.(instance.sandboxId, keep).warm === true;
      if (isKept) return;
      round.repaired++;
      const what = `removed what ${runtime.name} had of generation ${instance.generation}, which no sandbox owned`;
      record(round, { sandboxId: instance.sandboxId, org: sandbox?.org ?? null, what });
    });
  }
}

/** The newest generation of this sandbox that may be destroyed, or null when the instance is the current one. */
function newestStrayGeneration(
  ctx: Context,
  runtime: Runtime,
  sandbox: Sandbox | undefined,
  instance: Instance,
): number | null {
  // Its own node looks after it. What has ended has no node that would.
  const isElsewhere = sandbox !== undefined && sandbox.node !== ctx.node.name;
  if (runtime.isShared && isElsewhere && !isTerminal(sandbox.state)) return null;
  // The sandbox went on elsewhere. If it comes back meanwhile, its next instance has a newer generation.
  if (sandbox === undefined || sandbox.node !== ctx.node.name) return instance.generation;
  const lives = ['creating', 'running', 'pausing', 'resuming', 'killing'].includes(sandbox.state);
  const newestDead = lives ? sandbox.generation - 1 : sandbox.generation;
  return instance.generation <= newestDead ? newestDead : null;
}

/** One failing row never stops a round. */
async function countingFailures(
  ctx: Context,
  round: ReconcileRound,
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
