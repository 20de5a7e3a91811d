/** Database records as callers see them. */
import type { CheckpointView, OperationView, SandboxView, TemplateView } from '@torpor/protocol';
import { type Checkpoint, SHARED_ORG } from './checkpoints/checkpoint.ts';
import { viewHealth } from './checkpoints/health-record.ts';
import type { OpenOperation, Operation } from './operations/operation.ts';
import type { Warmth } from './ports/runtime.ts';
import type { AppliedRetention } from './retention/policy.ts';
import type { Sandbox } from './sandbox.ts';
import type { Template } from './templates/template.ts';

/**
 * `checkpoint` is the checkpoint that the sandbox would be resumed from, if it has one. `warmth` is what the runtime says
 * of a paused sandbox, if it says anything.
 */
export function viewSandbox(
  sandbox: Sandbox,
  open: OpenOperation | null,
  checkpoint: Checkpoint | undefined,
  retention: AppliedRetention,
  warmth: Warmth | undefined,
): SandboxView {
  const { config } = sandbox;
  return {
    id: sandbox.id,
    name: sandbox.name,
    state: sandbox.state,
    observedAt: sandbox.observedAt,
    evidence: sandbox.evidence,
    generation: sandbox.generation,
    runtime: sandbox.runtime,
    template: sandbox.template,
    checkpointId: sandbox.checkpointId,
    checkpointHealth: viewHealth(sandbox, checkpoint),
    baseId: sandbox.baseId,
    createdAt: sandbox.createdAt,
    startedAt: sandbox.startedAt,
    endsAt: sandbox.endsAt,
    deletePausedAfterSeconds: retention.keptForMs === 0 ? null : retention.keptForMs / 1_000,
    deletesAt: retention.deletesAt,
    timeoutSeconds: sandbox.timeoutMs === null ? null : sandbox.timeoutMs / 1_000,
    onTimeout: sandbox.onTimeout,
    pauseMode: config.pauseMode ?? null,
    idleSeconds: sandbox.idleMs / 1_000,
    onIdle: sandbox.onIdle,
    autoResume: config.autoResume,
    checkpointEverySeconds: sandbox.checkpointEveryMs === null ? null : sandbox.checkpointEveryMs / 1_000,
    node: sandbox.node,
    fallback: [...config.fallback],
    preview: config.preview,
    ...(config.requestHost === undefined ? {} : { requestHost: config.requestHost }),
    metadata: { ...sandbox.metadata },
    services: [...config.services],
    network: config.network,
    resources: config.resources,
    lost: [...sandbox.lost],
    reason: sandbox.reason,
    lostCheckpoint: sandbox.lostCheckpoint,
    warm: warmth?.warm ?? null,
    warmReason: warmth?.warm === false ? warmth.why : null,
    operationId: open?.id ?? null,
    operationKind: open?.kind ?? null,
  };
}

export function viewCheckpoint(checkpoint: Checkpoint, names: readonly string[]): CheckpointView {
  const { id, sandboxId, parentId, state, runtime, parts, external } = checkpoint;
  const { health, healthCode, healthDetail, faults, verifiedAt } = checkpoint;
  const { replayable, recovered, location, bytes, createdAt, sealedAt, expiresAt, replicatedAt } = checkpoint;
  const about = {
    id,
    sandboxId,
    parentId,
    state,
    health,
    healthCode,
    healthDetail,
    faults: [...faults],
    verifiedAt,
    runtime,
    parts,
    external,
  };
  return {
    ...about,
    replayable,
    recovered,
    location,
    bytes,
    createdAt,
    sealedAt,
    expiresAt,
    replicated: replicatedAt !== null,
    replicatedAt,
    names: [...names],
  };
}

/** Leaves out the environment, which may hold secrets. */
export function viewTemplate(template: Template): TemplateView {
  const { org, name, runtime, state, phase, checkpointId, definition, error, createdAt } = template;
  const { description, services, resources, root = null, image = null } = definition;
  return {
    name,
    runtime,
    builtIn: org === SHARED_ORG,
    state,
    phase,
    checkpointId,
    root,
    image,
    description,
    services: [...services],
    resources,
    error,
    createdAt,
  };
}

export function viewOperation(operation: Operation, phases: OperationView['phases']): OperationView {
  const { id, sandboxId, kind, phase, startedAt, deadlineAt, endedAt, outcome, error } = operation;
  return { id, sandboxId, kind, phase, phases, startedAt, deadlineAt, endedAt, outcome, error };
}
