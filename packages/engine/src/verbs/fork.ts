/** Fork: new sandboxes from what another is at this moment. */
import { type ForkRequest, type SandboxId, TorporError } from '@torpor/protocol';
import type { SealPlan } from '../acts/seal.ts';
import { start } from '../acts/start.ts';
import { type Checkpoint, findCheckpoint } from '../checkpoints/checkpoint.ts';
import { requireReplayable } from '../checkpoints/forkable.ts';
import { type Context, runtimeOf } from '../context.ts';
import { refusalForDiskSpace } from '../disk/disk-space.ts';
import { endOperation, listChildren, type Operation } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import { newSandboxes, requireQuota } from '../orgs/quota.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import { markUsed, toRetention } from '../retention/policy.ts';
import { getSandbox, type Sandbox } from '../sandbox.ts';
import { draft, draftCreate, insertBirth, memoryLimit, refuseTakenSandboxName } from './create.ts';
import { unlessSealFails } from './pause.ts';
import { claimSeal, sealAndStart } from './seal-and-start.ts';
import { planSnapshot } from './snapshot.ts';

export type Forked = { readonly sandboxId: SandboxId } | { readonly error: TorporError };

export async function fork(
  ctx: Context,
  caller: Caller,
  sandboxId: SandboxId,
  request: ForkRequest,
): Promise<{ readonly forks: Forked[]; readonly operation: Operation }> {
  if (request.name !== undefined && (request.count ?? 1) > 1) {
    throw new TorporError('invalid_request', 'One name cannot be given to several forks.', { sandboxId });
  }
  const source = await getSandbox(ctx.db, sandboxId, caller.org);
  const runtime = runtimeOf(ctx, source);
  if (!runtime.capabilities().fork) {
    throw new TorporError('capability_unsupported', `The runtime "${runtime.name}" cannot fork a sandbox.`);
  }
  let births: Births = [];
  const plan: SealPlan = planSnapshot(ctx, runtime, {
    name: null,
    kept: false,
    expiresAt: null,
    also: async (tx, sandbox, operation) => {
      // Asked again, because others may have taken the places while this one was frozen and written.
      await requireRoomForChildren(tx, sandbox, runtime, request);
      births = await insertChildren(
        ctx,

        tx,
        { sandbox, operation },
        plan.checkpointId,
        runtime,
        request,
      );
    },
  });
  const full = await refusalForDiskSpace(ctx);
  let claimed: Sandbox | undefined;
  const accepted = await ctx.operations.accept(
    { kind: 'fork', sandboxId, caller, request, reason: 'snapshot' },
    async (tx, sandbox, operation) => {
      if (full !== undefined) throw full;
      // Asked here as well, so that a name that is taken does not cost a freeze.
      if (request.name !== undefined) await refuseTakenSandboxName(tx, sandbox.org, request.name);
      await requireRoomForChildren(tx, sandbox, runtime, request);
      if (sandbox.state === 'paused' && sandbox.checkpointId !== null) {
        await requireReplayable(tx, sandbox);
        await markUsed(tx, sandbox.id, ctx.clock.now());
        const from = { sandbox, operation };
        births = await insertChildren(ctx, tx, from, sandbox.checkpointId, runtime, request);
        const result = { checkpointId: sandbox.checkpointId };
        await endOperation(tx, operation, ctx.clock.now(), { outcome: 'succeeded', result });
        return;
      }
      claimed = await claimSeal(ctx, tx, sandbox, operation, plan);
    },
    async (handle) => {
      const sandbox = claimed;
      try {
        if (sandbox !== undefined) await unlessSealFails(() => sealAndStart(ctx, handle, sandbox, plan));
      } finally {
        // Those that did not come to be find that out by their first commit.
        for (const { child, operation } of births)
          ctx.operations.drive(operation, (own) => start(ctx, own, child));
      }
    },
  );
  if (accepted.is === 'already') throw new Error('A fork is never already there.');
  const operation = await ctx.operations.finished(accepted.operationId, caller.signal);
  return { forks: await childrenOf(ctx, operation, caller), operation };
}

async function requireRoomForChildren(
  tx: Transaction,
  source: Sandbox,
  runtime: Runtime,
  { count = 1, resources }: ForkRequest,
): Promise<void> {
  const memoryMb = memoryLimit(runtime, resources ?? source.config.resources);
  await requireQuota(tx, source.org, newSandboxes(count, memoryMb), source);
}

type Births = { readonly child: Sandbox; readonly operation: Operation }[];

/** All children at once or none, together with the checkpoint they come from. */
async function insertChildren(
  ctx: Context,
  tx: Transaction,
  from: { readonly sandbox: Sandbox; readonly operation: Operation },
  checkpointId: Checkpoint['id'],
  runtime: Runtime,
  request: ForkRequest,
): Promise<Births> {
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
    ...(source.config.pauseMode === undefined ? {} : { pauseMode: source.config.pauseMode }),
    metadata: source.metadata,
    ...(source.timeoutMs === null ? {} : { timeoutSeconds: source.timeoutMs / 1_000 }),
    onTimeout: source.onTimeout,
    idleSeconds: source.idleMs / 1_000,
    deletePausedAfterSeconds: toRetention(source.deletePausedAfterMs),
    onIdle: source.onIdle,
  };
  const maker = { org: source.org, dialect: source.config.dialect };
  const births: Births = [];
  for (let i = 0; i < count; i++) {
    const sandbox = draft(ctx, maker, runtime, source.template, { ...inherited, ...wanted });
    const operation = { ...draftCreate(ctx, sandbox, { from: base.id }), parentId: from.operation.id };
    births.push({ child: await insertBirth(ctx, tx, { sandbox, base, operation }), operation });
  }
  return births;
}

/** Each child once it runs, or why it does not; one that failed does not hide the others. */
async function childrenOf(ctx: Context, operation: Operation, caller: Caller): Promise<Forked[]> {
  const children = await listChildren(ctx.db, operation.id);
  return Promise.all(
    children.map((child) =>
      ctx.operations.finished(child.id, caller.signal).then(
        () => ({ sandboxId: child.sandboxId }),
        (thrown: unknown) => ({ error: TorporError.from(thrown) }),
      ),
    ),
  );
}
