/** Sample responses of the server, which a test can vary. */
import type {
  CheckpointView,
  EventView,
  OperationView,
  ProcessView,
  SandboxHealth,
  SandboxView,
  SessionView,
  TrackedJobView,
} from '@torpor/protocol';

export const SANDBOX_ID = 'sbx_aaaaaaaaaaaaaaaaaaaa';
export const CHECKPOINT_ID = 'ckpt_bbbbbbbbbbbbbbbbbbbb';
export const OPERATION_ID = 'op_cccccccccccccccccccc';
export const JOB_ID = 'job_dddddddddddddddddddd';

export function sandboxView(more: Partial<SandboxView> = {}): SandboxView {
  return {
    id: SANDBOX_ID,
    name: null,
    state: 'running',
    observedAt: 1_000,
    evidence: 'running',
    generation: 1,
    runtime: 'process',
    template: 'base',
    checkpointId: null,
    checkpointHealth: null,
    baseId: null,
    createdAt: 1_000,
    startedAt: 1_000,
    endsAt: null,
    deletePausedAfterSeconds: null,
    deletesAt: null,
    timeoutSeconds: null,
    onTimeout: 'pause',
    pauseMode: null,
    idleSeconds: 300,
    onIdle: 'pause',
    autoResume: true,
    fallback: ['files'],
    preview: 'public',
    metadata: {},
    services: [],
    network: {},
    resources: {},
    lost: [],
    reason: null,
    lostCheckpoint: null,
    warm: null,
    warmReason: null,
    operationId: null,
    operationKind: null,
    ...more,
  };
}

export function sandboxHealth(more: Partial<SandboxHealth> = {}): SandboxHealth {
  return {
    sandboxId: SANDBOX_ID,
    state: 'running',
    evidence: 'running',
    observedAt: 1_000,
    generation: 1,
    agent: 'answers',
    agentError: null,
    uptimeSeconds: 5,
    ...more,
  };
}

export function checkpointView(more: Partial<CheckpointView> = {}): CheckpointView {
  return {
    id: CHECKPOINT_ID,
    sandboxId: SANDBOX_ID,
    parentId: null,
    names: [],
    state: 'sealed',
    health: 'ok',
    healthCode: null,
    healthDetail: null,
    faults: [],
    verifiedAt: null,
    runtime: 'process',
    parts: { files: true, memory: false },
    external: false,
    replayable: true,
    recovered: false,
    location: null,
    bytes: 2_048,
    createdAt: 1_000,
    sealedAt: 1_100,
    expiresAt: null,
    ...more,
  };
}

export function operationView(more: Partial<OperationView> = {}): OperationView {
  return {
    id: OPERATION_ID,
    sandboxId: SANDBOX_ID,
    kind: 'pause',
    phase: null,
    phases: [],
    startedAt: 1_000,
    deadlineAt: 2_000,
    endedAt: 1_500,
    outcome: 'succeeded',
    error: null,
    ...more,
  };
}

export function sessionView(): SessionView {
  return {
    id: 'ses_eeeeeeeeeeeeeeeeeeee',
    key: 'chat',
    program: { command: 'agent', mode: 'turn' },
    sandbox: {},
    sandboxId: SANDBOX_ID,
    agentThreadId: null,
    change: null,
    error: null,
    createdAt: 1_000,
    endedAt: null,
  };
}

export function processView(more: Partial<ProcessView> = {}): ProcessView {
  return {
    id: null,
    jobId: null,
    kind: 'process',
    pid: 1,
    command: 'true',
    cwd: null,
    status: 'running',
    reason: null,
    startedAt: null,
    ...more,
  };
}

export function jobView(more: Partial<TrackedJobView> = {}): TrackedJobView {
  return {
    id: JOB_ID,
    kind: 'process',
    sandboxId: SANDBOX_ID,
    name: null,
    command: 'sleep 1000',
    cwd: null,
    pid: 7,
    state: 'running',
    generation: 1,
    restarts: 0,
    forkedFrom: null,
    createdAt: 1_000,
    startedAt: 1_000,
    endedAt: null,
    exitCode: null,
    signal: null,
    lost: null,
    ...more,
  };
}

export function eventView(number: number, more: Partial<EventView> = {}): EventView {
  return {
    id: `evt_${String(number).padStart(20, '0')}`,
    sandboxId: SANDBOX_ID,
    seq: number,
    position: number,
    at: 1_000 + number,
    type: 'operation.phase',
    previousState: 'running',
    state: 'running',
    generation: 1,
    checkpointId: null,
    operationId: null,
    data: {},
    ...more,
  };
}
