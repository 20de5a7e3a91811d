/** Sandboxes as callers see them. */
import { type Page, pageOf, type SandboxId, type SandboxView } from '@torpor/protocol';
import { observe } from '../acts/observe.ts';
import { findCheckpoint, findCheckpoints } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { findOpenOperation, openOperationsOf } from '../operations/operation.ts';
import type { Observation, Warmth } from '../ports/runtime.ts';
import { type AppliedRetention, appliedTo, retentionOfOrgs } from '../retention/policy.ts';
import {
  type Dialect,
  findSandbox,
  getSandbox,
  listSandboxes,
  listByStart as listStarted,
  type Sandbox,
  type SandboxFilter,
  type StartedPage,
} from '../sandbox.ts';
import { viewSandbox } from '../view.ts';

export interface FoundSandbox {
  readonly org: string;
  readonly dialect: Dialect;
  readonly sandbox: SandboxView;
}

/** The sandbox as the database has it. */
export async function sandboxView(ctx: Context, org: string, id: SandboxId): Promise<SandboxView> {
  const sandbox = await getSandbox(ctx.db, id, org);
  const open = await findOpenOperation(ctx.db, id);
  const { checkpointId } = sandbox;
  const checkpoint = checkpointId === null ? undefined : await findCheckpoint(ctx.db, checkpointId);
  const ofOrg = await retentionOfOrgs(ctx.db, [org], ctx.settings.deletePausedAfterMs);
  const retention = appliedTo(ctx, sandbox, ofOrg);
  return viewSandbox(sandbox, open ?? null, checkpoint, retention, warmthOf(ctx, sandbox));
}

/** Asks the runtime, which answers from memory. */
function warmthOf(ctx: Context, { id, state, runtime, checkpointId }: Sandbox): Warmth | undefined {
  if (state !== 'paused' || checkpointId === null) return undefined;
  return ctx.runtimes.get(runtime)?.warmth?.(id, checkpointId);
}

async function sandboxViews(ctx: Context, sandboxes: readonly Sandbox[]): Promise<SandboxView[]> {
  const ids = sandboxes.map(({ id }) => id);
  const open = await openOperationsOf(ctx.db, ids);
  const attached = sandboxes.flatMap(({ checkpointId }) => checkpointId ?? []);
  const checkpoints = await findCheckpoints(ctx.db, attached);
  const orgs = [...new Set(sandboxes.map(({ org }) => org))];
  const ofOrg = await retentionOfOrgs(ctx.db, orgs, ctx.settings.deletePausedAfterMs);
  return sandboxes.map((sandbox) => {
    const { id, checkpointId } = sandbox;
    const checkpoint = checkpointId === null ? undefined : checkpoints.get(checkpointId);
    const retention = appliedTo(ctx, sandbox, ofOrg);
    return viewSandbox(sandbox, open.get(id) ?? null, checkpoint, retention, warmthOf(ctx, sandbox));
  });
}

/** Observes a running sandbox while the caller waits, within a short bound. */
export async function get(ctx: Context, org: string, id: SandboxId): Promise<SandboxView> {
  const seen = await observeRunning(ctx, org, id);
  const view = await sandboxView(ctx, org, id);
  // The state may have changed during the observation; then the observation says nothing about it.
  const same = view.state === 'running' && view.generation === seen?.generation;
  return same ? { ...view, evidence: seen.found.is, observedAt: ctx.clock.now() } : view;
}

/** Observes a running sandbox. When it has ended, repairs it before the caller is answered. */
export async function observeRunning(
  ctx: Context,
  org: string,
  id: SandboxId,
): Promise<{ readonly found: Observation; readonly generation: number } | undefined> {
  const sandbox = await getSandbox(ctx.db, id, org);
  // The runtime of this machine knows nothing of a sandbox on another node.
  if (sandbox.state !== 'running' || sandbox.node !== ctx.node.name) return undefined;
  const found = await observe(ctx, sandbox);
  if (found.is === 'gone') await ctx.endedInstances.waitForRepair(sandbox);
  return { found, generation: sandbox.generation };
}

export async function list(
  ctx: Context,
  filter: SandboxFilter,
  cursor: string,
  limit: number,
): Promise<Page<SandboxView>> {
  const found = await listSandboxes(ctx.db, filter, cursor, limit + 1);
  const { items, nextCursor } = pageOf(found, limit, ({ id }) => id);
  return { items: await sandboxViews(ctx, items), nextCursor };
}

/** One page in the order of starts. */
export async function listByStart(
  ctx: Context,
  filter: SandboxFilter,
  page: StartedPage,
): Promise<SandboxView[]> {
  return sandboxViews(ctx, await listStarted(ctx.db, filter, page));
}

const KEPT: AppliedRetention = { keptForMs: 0, deletesAt: null };

/** A sandbox by its id alone, as the ledger has it: for callers without a key of its organisation. */
export async function find(ctx: Context, id: SandboxId): Promise<FoundSandbox | undefined> {
  const found = await findSandbox(ctx.db, id);
  if (found === undefined) return undefined;
  const { org, config } = found;
  // These callers want to reach the sandbox, for which health, retention and warmth do not matter.
  const sandbox = viewSandbox(found, null, undefined, KEPT, undefined);
  return { org, dialect: config.dialect ?? 'native', sandbox };
}
