/** Create: a new sandbox from a template or a checkpoint. */
import {
  type CreateRequest,
  nameOfUse,
  type OperationId,
  type Resources,
  type SandboxView,
  type Service,
  TorporError,
} from '@torpor/protocol';
import { sealMode } from '../acts/seal-plan.ts';
import { start } from '../acts/start.ts';
import { type Checkpoint, getSealed } from '../checkpoints/checkpoint.ts';
import { requireForkable } from '../checkpoints/forkable.ts';
import { type Context, pauseCapability, runtimeOf } from '../context.ts';
import { refusalForDiskSpace } from '../disk/disk-space.ts';
import { recordEvent } from '../ledger/transition.ts';
import { requireAtHand } from '../nodes/ownership.ts';
import { reserve } from '../nodes/reservation.ts';
import { insertOperation, type Operation, type Succeeded } from '../operations/operation.ts';
import type { Caller } from '../operations/operations.ts';
import { newSandboxes, requireQuota } from '../orgs/quota.ts';
import { ConstraintViolation, type Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import { sandboxView } from '../queries/sandboxes.ts';
import { toStoredRetention } from '../retention/policy.ts';
import {
  type CommandDefaults,
  commandDefaults,
  findSandbox,
  insertSandbox,
  type Sandbox,
} from '../sandbox.ts';
import { type Definition, firstCheckpoint, getTemplate } from '../templates/template.ts';
import { requireSecrets } from './required-secrets.ts';

export interface Created {
  readonly operation: { readonly id: OperationId };
  readonly sandbox: SandboxView;
}

export async function create(ctx: Context, caller: Caller, request: CreateRequest): Promise<Created> {
  const operation =
    (await ctx.operations.replayed(caller, 'create', '', request)) ?? (await createNew(ctx, caller, request));
  return { operation, sandbox: await sandboxView(ctx, operation.org, operation.sandboxId) };
}

async function createNew(ctx: Context, caller: Caller, request: CreateRequest): Promise<Succeeded<'create'>> {
  const { base, template, definition, defaults } = await originOf(ctx, caller.org, request);
  const runtime = runtimeOf(ctx, base);
  requireAtHand(ctx, base);
  await requireSecrets(ctx, caller.org, request.network);
  const { org, dialect } = caller;
  const creator = { org, dialect, ...defaults };
  const sandbox = draftSandbox(ctx, creator, runtime, template, withDefinition(request, definition));
  const operation = draftCreate(ctx, sandbox, request, caller.by);
  const full = await refusalForDiskSpace(ctx);
  const created = ctx.operations.runCreate({
    caller,
    request,
    operation,
    insert: async (tx) => {
      if (full !== undefined) throw full;
      await requireQuota(tx, sandbox.org, newSandboxes(1, sandbox.memoryMb));
      await reserve(ctx, tx, { memoryMb: sandbox.memoryMb, what: 'new' });
      return insertNewSandbox(ctx, tx, { sandbox, base, operation });
    },
    execute: (handle, creating) => start(ctx, handle, creating),
  });
  return created.catch((thrown: unknown) => {
    const gone = thrown instanceof ConstraintViolation && thrown.kind === 'foreign_key';
    throw gone ? deletedMeanwhile(base) : thrown;
  });
}

function deletedMeanwhile({ id }: Checkpoint): TorporError {
  return new TorporError('expired', `Checkpoint ${id} was deleted.`, { checkpointId: id });
}

/** A sandbox to be created: its row, the checkpoint that it starts from, and the operation that starts it. */
interface NewSandbox {
  readonly sandbox: Sandbox;
  readonly base: Checkpoint;
  readonly operation: Operation<'create'>;
}

export function draftCreate(
  ctx: Context,
  sandbox: Sandbox,
  request: CreateRequest,
  by: Caller['by'],
): Operation<'create'> {
  // The sandbox's own row keeps the rest of the request.
  const { from, fallback } = request;
  const kept = { ...(from === undefined ? {} : { from }), ...(fallback === undefined ? {} : { fallback }) };
  return ctx.operations.draft({
    kind: 'create',
    sandboxId: sandbox.id,
    caller: { org: sandbox.org, by },
    request: kept,
    reason: 'request',
  });
}

/** All rows of a new sandbox; part of the transaction that accepts its creation. */
export async function insertNewSandbox(
  ctx: Context,
  tx: Transaction,
  { sandbox, base, operation }: NewSandbox,
): Promise<Sandbox> {
  if (sandbox.name !== null) await refuseTakenSandboxName(tx, sandbox.org, sandbox.name);
  await insertSandbox(tx, sandbox);
  await insertOperation(tx, operation);
  const { template, runtime } = sandbox;
  const secrets = (sandbox.config.network.secrets ?? []).map(nameOfUse);
  const made = { template, runtime, ...(secrets.length === 0 ? {} : { secrets }) };
  const fields = { operationId: operation.id, generation: 1, baseId: base.id };
  return recordEvent(ctx, tx, sandbox, 'sandbox.created', made, fields);
}

export async function refuseTakenSandboxName(tx: Transaction, org: string, name: string): Promise<void> {
  const [taken] = await tx.query<{ id: string }>(
    `SELECT id FROM sandboxes WHERE org = $1 AND name = $2 AND state NOT IN ('killed', 'failed', 'lost')`,
    [org, name],
  );
  if (taken === undefined) return;
  throw new TorporError('conflict', `There is a sandbox named "${name}" already.`, {
    sandboxId: taken.id,
    hint: 'Use that one, or choose another name.',
  });
}

interface Origin {
  readonly base: Checkpoint;
  readonly template: string | null;
  readonly definition: Definition | null;
  readonly defaults: CommandDefaults;
}

/** What a new sandbox starts from. */
export async function originOf(ctx: Context, org: string, request: CreateRequest): Promise<Origin> {
  const { runtime } = request;
  if (request.from === undefined) {
    if (runtime !== undefined) runtimeOf(ctx, { runtime });
    const { template: name = 'base' } = request;
    const template = await getTemplate(ctx, org, name, runtime);
    const base = await firstCheckpoint(ctx.db, template);
    const { definition } = template;
    return { base, template: name, definition, defaults: commandDefaults(definition) };
  }
  const base = await getSealed(ctx.db, request.from, org);
  if (request.runtime !== undefined && request.runtime !== base.runtime) {
    throw new TorporError(
      'checkpoint_incompatible',
      `Checkpoint ${base.id} was made by the runtime "${base.runtime}" and cannot start on "${request.runtime}".`,
      { checkpointId: base.id },
    );
  }
  requireForkable(ctx, base);
  const source = base.sandboxId === null ? undefined : await findSandbox(ctx.db, base.sandboxId);
  return { base, template: null, definition: null, defaults: commandDefaults(source?.config ?? {}) };
}

/** Adds what the template defines and the caller does not override. The template's services come first. */
function withDefinition(request: CreateRequest, definition: Definition | null): CreateRequest {
  if (definition === null) return request;
  const { services = [], env, resources } = request;
  const isOwn = ({ name }: Service) => services.some((own) => own.name === name);
  return {
    ...request,
    env: { ...definition.env, ...env },
    resources: { ...definition.resources, ...resources },
    services: [...definition.services.filter((service) => !isOwn(service)), ...services],
  };
}

export function memoryLimit(runtime: Runtime, resources: Resources | undefined): number | null {
  return resources?.memoryMb ?? runtime.defaultMemoryMb ?? null;
}

/** A runtime that has to pause and start a sandbox for a checkpoint would cut its connections each time. */
function requireInPlace(runtime: Runtime): void {
  const { snapshotWhileRunning, replayable, pause } = runtime.capabilities();
  if (pause !== 'none' && replayable && (snapshotWhileRunning || runtime.warmth !== undefined)) return;
  throw new TorporError(
    'capability_unsupported',
    `The runtime "${runtime.name}" cannot seal a running sandbox, so it cannot keep checkpointEverySeconds. Nothing was changed.`,
  );
}

/** Refuses a policy that the runtime cannot keep, before anything is written. */
export function draftSandbox(
  ctx: Context,
  { org, dialect, user, workdir }: Pick<Caller, 'org' | 'dialect'> & CommandDefaults,
  runtime: Runtime,
  template: string | null,
  request: Omit<CreateRequest, 'template' | 'from' | 'runtime'>,
): Sandbox {
  const canPause = runtime.capabilities().pause !== 'none';
  const { onTimeout = canPause ? 'pause' : 'kill', onIdle = canPause ? 'pause' : 'keep' } = request;
  if (request.onTimeout === 'pause') pauseCapability(runtime, 'keep the policy onTimeout "pause"');
  if (request.onIdle === 'pause') pauseCapability(runtime, 'keep the policy onIdle "pause"');
  if (request.checkpointEverySeconds !== undefined) requireInPlace(runtime);
  if (request.network !== undefined) runtime.checkNetwork(request.network);
  if (request.pauseMode !== undefined) sealMode(runtime, request.pauseMode, 'keep the policy pauseMode');
  const now = ctx.clock.now();
  return {
    id: ctx.ids.next('sbx'),
    org,
    name: request.name ?? null,
    runtime: runtime.name,
    template,
    config: {
      env: request.env ?? {},
      services: (request.services ?? []).map((service) => ({ ...service, jobId: ctx.ids.next('job') })),
      network: request.network ?? {},
      resources: request.resources ?? {},
      fallback: request.fallback ?? ['files'],
      autoResume: request.autoResume ?? true,
      preview: request.preview ?? 'public',
      requestHost: request.requestHost,
      pauseMode: request.pauseMode,
      user,
      workdir,
      dialect,
      ...(onIdle === 'stop' ? { stopsWhenIdle: true } : {}),
    },
    metadata: request.metadata ?? {},
    timeoutMs: request.timeoutSeconds === undefined ? null : request.timeoutSeconds * 1_000,
    onTimeout,
    idleMs: request.idleSeconds === undefined ? ctx.settings.defaultIdleMs : request.idleSeconds * 1_000,
    onIdle,
    state: 'creating',
    seq: 0,
    generation: 0,
    baseId: null,
    checkpointId: null,
    endsAt: null,
    lost: [],
    reason: null,
    lostCheckpoint: null,
    observedAt: now,
    evidence: 'ledger',
    createdAt: now,
    startedAt: null,
    deletePausedAfterMs: toStoredRetention(request.deletePausedAfterSeconds),
    unusedSince: null,
    deletesAt: null,
    memoryMb: memoryLimit(runtime, request.resources),
    countsEgress: runtime.takeEgress !== undefined,
    node: ctx.node.name,
    checkpointEveryMs:
      request.checkpointEverySeconds === undefined ? null : request.checkpointEverySeconds * 1_000,
  };
}
