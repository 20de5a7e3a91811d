/** A sandbox as E2B's clients know it. */
import { availableParallelism, totalmem } from 'node:os';
import { ENVD_VERSION } from '@torpor/envd';
import type { Gateway } from '@torpor/gateway';
import {
  bareSandboxId,
  lostDetails,
  type Resources,
  type SandboxState,
  type SandboxView,
  TorporError,
} from '@torpor/protocol';
import { notFound } from './failures.ts';
import { egressOf } from './network-rules.ts';

/** E2B gives every sandbox the id of a client, which nobody uses any more. */
const CLIENT_ID = 'torpor';
/** Of a sandbox without an end, because the field must be there. */
const NEVER = '9999-12-31T23:59:59.999Z';
const MIB = 1024 * 1024;
/** What runtimes give to those who do not say; a bound, not a promise. */
const DEFAULT_LIMITS = { memoryMb: 4_096, diskMb: 10_240 };

/** What a sandbox may take, in whole numbers. */
export function limitsOf({ cpus, memoryMb, diskMb }: Resources) {
  return {
    cpuCount: Math.max(1, Math.ceil(cpus ?? availableParallelism())),
    memoryMB: memoryMb ?? Math.min(DEFAULT_LIMITS.memoryMb, Math.floor(totalmem() / MIB / 2)),
    diskSizeMB: diskMb ?? DEFAULT_LIMITS.diskMb,
  };
}

/** The two states that their clients know; those in between count as asleep. Undefined: not shown to anybody. */
const SHOWN: Readonly<Partial<Record<SandboxState, 'running' | 'paused'>>> = {
  running: 'running',
  pausing: 'paused',
  paused: 'paused',
  resuming: 'paused',
};

export const SHOWN_STATES = Object.keys(SHOWN) as SandboxState[];

/** Throws for what their clients must take for absent, or for lost. */
export function shownState(sandbox: SandboxView): 'running' | 'paused' {
  const { id, state, reason, operationKind } = sandbox;
  const shown = SHOWN[state];
  // Some runtimes put a sandbox to sleep for the moment in which it is copied.
  const isCopied = operationKind === 'snapshot' || operationKind === 'fork';
  if (shown !== undefined) return isCopied ? 'running' : shown;
  if (state === 'lost') {
    throw new TorporError('lost', `The sandbox is lost: ${reason ?? 'nothing usable is left of it'}.`, {
      sandboxId: id,
      ...lostDetails(sandbox),
    });
  }
  throw notFound(`The sandbox ${bareSandboxId(id)}`);
}

/** Asleep to stay so. Throws for what is gone, and `transitioning` for what only passes through its sleep. */
export function isPaused(sandbox: SandboxView): boolean {
  const { id: sandboxId, state, operationId } = sandbox;
  shownState(sandbox);
  if (state !== 'paused') return false;
  if (operationId === null) return true;
  throw new TorporError('transitioning', 'The sandbox is busy.', { sandboxId, operationId });
}

export type ShapeContext = { readonly gateway?: Pick<Gateway, 'tokens' | 'domain'> };

/** What it takes to talk to a sandbox: the answer to create, connect and fork. */
export function sandboxShape({ gateway }: ShapeContext, sandbox: SandboxView) {
  const { id, preview } = sandbox;
  return {
    ...templateFields(sandbox),
    sandboxID: bareSandboxId(id),
    clientID: CLIENT_ID,
    envdVersion: ENVD_VERSION,
    ...(gateway === undefined
      ? {}
      : {
          envdAccessToken: gateway.tokens.accessToken(id),
          trafficAccessToken: preview === 'private' ? gateway.tokens.previewToken(id) : null,
          domain: gateway.domain,
        }),
  };
}

export function listedShape(sandbox: SandboxView) {
  const { id, startedAt, createdAt, metadata, resources } = sandbox;
  const state = shownState(sandbox);
  return {
    ...templateFields(sandbox),
    sandboxID: bareSandboxId(id),
    clientID: CLIENT_ID,
    startedAt: new Date(startedAt ?? createdAt).toISOString(),
    endAt: endOf(sandbox, state),
    ...limitsOf(resources),
    metadata,
    state,
    envdVersion: ENVD_VERSION,
    volumeMounts: [],
  };
}

export function detailShape(ctx: ShapeContext, sandbox: SandboxView) {
  const { envdAccessToken, domain } = sandboxShape(ctx, sandbox);
  const { network, autoResume, onTimeout, preview } = sandbox;
  const egress = egressOf(network);
  return {
    ...listedShape(sandbox),
    ...(envdAccessToken === undefined ? {} : { envdAccessToken, domain }),
    allowInternetAccess: !egress.denyOut.includes('0.0.0.0/0'),
    network: { ...egress, allowPublicTraffic: preview === 'public' },
    lifecycle: { autoResume, onTimeout },
  };
}

/** A sandbox that sleeps has ended when it fell asleep. */
function endOf({ endsAt, observedAt }: SandboxView, state: 'running' | 'paused'): string {
  if (endsAt !== null) return new Date(endsAt).toISOString();
  return state === 'running' ? NEVER : new Date(observedAt).toISOString();
}

/** One that was made from a checkpoint without a name has only that to be named by. */
function templateFields({ template, baseId, checkpointId }: SandboxView) {
  return template === null
    ? { templateID: baseId ?? checkpointId ?? 'base' }
    : { templateID: template, alias: template };
}
