/** Fork: new sandboxes from the present contents of another. */
import {
  type CheckpointId,
  type ErrorBody,
  type ForkRequest,
  type OperationId,
  type SandboxId,
  type SandboxView,
  TorporError,
} from '@torpor/protocol';
import { finishSeal } from '../acts/finish-seal.ts';
import { beginSeal, seal } from '../acts/seal.ts';
import type { ContinuingSealPlan } from '../acts/seal-plan.ts';
import { start } from '../acts/start.ts';
import { findCheckpoint } from '../checkpoints/checkpoint.ts';
import { requireAttachedReplayable } from '../checkpoints/forkable.ts';
import { type Context, runtimeOf } from '../context.ts';
import { refusalForDiskSpace } from '../disk/disk-space.ts';
import { requireAtHand } from '../nodes/ownership.ts';
import { reserve } from '../nodes/reservation.ts';
import { endOperation, listChildren, type Operation } from '../operations/operation.ts';
import type { OperationHandle } from '../operations/operation-handle.ts';
import { OperationTrace } from '../operations/operation-trace.ts';
import type { Caller } from '../operations/operations.ts';
import { newSandboxes, requireQuota } from '../orgs/quota.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import { sandboxView } from '../queries/sandboxes.ts';
import { markUsed, toRetention } from '../retention/policy.ts';
import { commandDefaults, getSandbox, type Sandbox } from '../sandbox.ts';
import {
  draftCreate,
  draftSandbox,
  insertNewSandbox,
  memoryLimit,
  refuseTakenSandboxName,
} from './create.ts';
import { requireSecrets } from './required-secrets.ts';
import { planSnapshot } from './snapshot.ts';

export type Fork = { readonly sandbox: SandboxView } | { readonly error: ErrorBody };

export async function fork(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: ForkRequest = {},
): Promise<{ readonly operation: { readonly id: OperationId }; readonly forks: Fork[] }> {
  if (request.name !== undefined && (request.count ?? 1) > 1) {
    throw new TorporError('invalid_request', 'One name cannot be given to several forks.', { sandboxId });
  }
  const source = await getSandbox(ctx.db, sandboxId, caller.org);
  const runtime = runtimeOf(ctx, source);
  if (!runtime.capabilities().fork) {
    throw new TorporError('capability_unsupported', `The runtime "${runtime.name}" cannot fork a sandbox.`);
  }
  await requireSecrets(ctx, caller.org, request.network);
  const inPlan = planSnapshot(ctx, runtime);
  const plan: ContinuingSealPlan<Child[]> = {
    ...inPlan,
    kept: false,
    name: null,
    expiresAt: null,
    extraWrites: async (tx, sandbox, operation) => {
      // Asked again: others may have used up the quota while the source was frozen and written.
      await requireQuotaForChildren(ctx, tx, sandbox, runtime, request);
      const from = { sandbox, operation };
      return insertChildren(ctx, tx, from, inPlan.checkpointId, runtime, request);
    },
  };
  const full = await refusalForDiskSpace(ctx);
  const operation = await ctx.operations.run({
    kind: 'fork',
    sandboxId,
    caller,
    request,
    reason: 'snapshot',
    onAccept: async (tx, sandbox, operation): Promise<Claimed> => {
      if (full !== undefined) throw full;
      // The commit checks the name again; this check saves the freeze.
      if (request.name !== undefined) await refuseTakenSandboxName(tx, sandbox.org, request.name);
      await requireQuotaForChildren(ctx, tx, sandbox, runtime, request);
      const { checkpointId } = sandbox;
      if (sandbox.state !== 'paused' || checkpointId === null) {
        return { is: 'to seal', sandbox: await beginSeal(ctx, tx, sandbox, operation, plan) };
      }
      await requireAttachedReplayable(tx, sandbox);
      if (ctx.node.isClustered) requireAtHand(ctx, await findCheckpoint(tx, checkpointId));
      await markUsed(tx, sandbox.id, ctx.clock.now());
      const from = { sandbox, operation };
      const children = await insertChildren(ctx, tx, from, checkpointId, runtime, request);
      await endOperation(tx, operation, ctx.clock.now(), { outcome: 'succeeded', result: { checkpointId } });
      return { is: 'ended', children };
    },
    execute: async (handle, accepted) => {
      if (accepted.is === 'ended') return startChildren(ctx, handle, accepted.children);
      const sealed = await seal(ctx, handle, accepted.sandbox, plan);
      if (sealed.is === 'failed') return;
      // Beside the source, which takes some milliseconds to go on.
      startChildren(ctx, handle, sealed.extraResult);
      await finishSeal(ctx, handle, accepted.sandbox, plan);
    },
  });
  return { operation, forks: await forksOf(ctx, operation, caller) };
}

/** A paused source has its checkpoint already, so the accepting transaction ends the fork. */
type Claimed =
  | { readonly is: 'to seal'; readonly sandbox: Sandbox }
  | { readonly is: 'ended'; readonly children: readonly Child[] };

/** A new sandbox, and the operation that creates it. */
interface Child {
  readonly sandbox: Sandbox;
  readonly operation: Operation<'create'>;
}

function startChildren(ctx: Context, { trace }: OperationHandle, children: readonly Child[]): void {
  for (const { sandbox, operation } of children) {
    const childTrace = new OperationTrace(ctx.tracing, trace.span, operation);
    ctx.operations.drive(operation, (handle) => start(ctx, handle, sandbox), childTrace);
  }
}

async function requireQuotaForChildren(
  ctx: Context,
  tx: Transaction,
  source: Sandbox,
  runtime: Runtime,
  { count = 1, resources }: ForkRequest,
): Promise<void> {
  const memoryMb = memoryLimit(runtime, resources ?? source.config.resources);
  await requireQuota(tx, source.org, newSandboxes(count, memoryMb), source);
  await reserve(ctx, tx, { memoryMb: memoryMb === null ? null : count * memoryMb, what: 'new' });
}

/** All children at once or none, together with the checkpoint that they start from. */
async function insertChildren(
  ctx: Context,
  tx: Transaction,
  from: { readonly sandbox: Sandbox; readonly operation: Operation },
  checkpointId: CheckpointId,
  runtime: Runtime,
  request: ForkRequest,
): Promise<Child[]> {
  const source = from.sandbox;
  const base = await findCheckpoint(tx, checkpointId);
  if (base === undefined) throw new Error(`Checkpoint ${checkpointId} has no row.`);
  const { count = 1, ...wanted } = request;
  const inherited = {
    env: source.config.env,
    services: [...source.config.services],
    network: source.config.network,
    resources: source.config.resources,
    fallback: [...source.config.fallback],
    autoResume: source.config.autoResume,
    preview: source.config.preview,
    ...(source.config.requestHost === undefined ? {} : { requestHost: source.config.requestHost }),
    ...(source.config.pauseMode === undefined ? {} : { pauseMode: source.config.pauseMode }),
    metadata: source.metadata,
    ...(source.timeoutMs === null ? {} : { timeoutSeconds: source.timeoutMs / 1_000 }),
    onTimeout: source.onTimeout,
    idleSeconds: source.idleMs / 1_000,
    deletePausedAfterSeconds: toRetention(source.deletePausedAfterMs),
    onIdle: source.onIdle,
    ...(source.checkpointEveryMs === null
      ? {}
      : { checkpointEverySeconds: source.checkpointEveryMs / 1_000 }),
  };
  const creator = { org: source.org, dialect: source.config.dialect, ...commandDefaults(source.config) };
  const children: Child[] = [];
  for (let i = 0; i < count; i++) {
    const sandbox = draftSandbox(ctx, creator, runtime, source.template, { ...inherited, ...wanted });
    const drafted = draftCreate(ctx, sandbox, { from: base.id }, from.operation.by ?? undefined);
    const operation = { ...drafted, parentId: from.operation.id };
    children.push({ sandbox: await insertNewSandbox(ctx, tx, { sandbox, base, operation }), operation });
  }
  return children;
}

/** Each child once it runs, or why it does not run; a child that failed does not hide the others. */
async function forksOf(ctx: Context, operation: Pick<Operation, 'id'>, caller: Caller): Promise<Fork[]> {
  const creates = await listChildren(ctx.db, operation.id);
  return Promise.all(
    creates.map(async ({ id, org, sandboxId }): Promise<Fork> => {
      try {
        await ctx.operations.finished(id, caller.signal);
      } catch (thrown) {
        return { error: TorporError.from(thrown).toBody() };
      }
      return { sandbox: await sandboxView(ctx, org, sandboxId) };
    }),
  );
}
