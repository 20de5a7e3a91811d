/** Sandboxes in the shape of E2B's API. */
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
  visibleProcessors,
} from '@torpor/protocol';
import { notFound } from './failures.ts';
import { egressOf } from './network-rules.ts';

/** E2B's responses require a client id, which its clients no longer use. */
const CLIENT_ID = 'torpor';
/** The end of a sandbox without a timeout, because the field is required. */
const NEVER = '9999-12-31T23:59:59.999Z';
const MIB = 1024 * 1024;
/** The default limits of the runtimes: upper bounds, not reservations. */
export const DEFAULT_LIMITS = { memoryMb: 4_096, diskMb: 10_240 };

/** The resource limits of a sandbox, in whole numbers. */
export function limitsOf({ cpus, memoryMb, diskMb }: Resources) {
  return {
    cpuCount: visibleProcessors({ cpus }, availableParallelism()),
    memoryMB: memoryMb ?? Math.min(DEFAULT_LIMITS.memoryMb, Math.floor(totalmem() / MIB / 2)),
    diskSizeMB: diskMb ?? DEFAULT_LIMITS.diskMb,
  };
}

/** E2B has two states; transitions count as paused. States without an entry are not shown. */
const SHOWN: Readonly<Partial<Record<SandboxState, 'running' | 'paused'>>> = {
  running: 'running',
  pausing: 'paused',
  paused: 'paused',
  resuming: 'paused',
};

export const SHOWN_STATES = Object.keys(SHOWN) as SandboxState[];

/** Throws `not_found` for sandboxes that E2B's clients must not see, and `lost` for a lost one. */
export function shownState(sandbox: SandboxView): 'running' | 'paused' {
  const { id, state, reason, operationKind } = sandbox;
  const shown = SHOWN[state];
  // Some runtimes pause a sandbox for a moment while it is copied.
  const isBeingCopied = operationKind === 'snapshot' || operationKind === 'fork';
  if (shown !== undefined) return isBeingCopied ? 'running' : shown;
  if (state === 'lost') {
    throw new TorporError('lost', `The sandbox is lost: ${reason ?? 'nothing usable is left of it'}.`, {
      sandboxId: id,
      ...lostDetails(sandbox),
    });
  }
  throw notFound(`The sandbox ${bareSandboxId(id)}`);
}

/** Whether the sandbox is paused and stays so. Throws when it is gone, and `transitioning` during an operation. */
export function isPaused(sandbox: SandboxView): boolean {
  const { id: sandboxId, state, operationId } = sandbox;
  shownState(sandbox);
  if (state !== 'paused') return false;
  if (operationId === null) return true;
  throw new TorporError('transitioning', 'The sandbox is busy.', { sandboxId, operationId });
}

export type ShapeContext = { readonly gateway?: Pick<Gateway, 'tokens' | 'domain'> };

/** The answer to create, connect and fork: what a client needs to reach the sandbox. */
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
  const { network, autoResume, onTimeout, preview, requestHost: maskRequestHost } = sandbox;
  const egress = egressOf(network);
  return {
    ...listedShape(sandbox),
    ...(envdAccessToken === undefined ? {} : { envdAccessToken, domain }),
    allowInternetAccess: !egress.denyOut.includes('0.0.0.0/0'),
    network: {
      ...egress,
      allowPublicTraffic: preview === 'public',
      ...(maskRequestHost === undefined ? {} : { maskRequestHost }),
    },
    lifecycle: { autoResume, onTimeout },
  };
}

/** For a paused sandbox without a timeout, the time when it was paused. */
function endOf({ endsAt, observedAt }: SandboxView, state: 'running' | 'paused'): string {
  if (endsAt !== null) return new Date(endsAt).toISOString();
  return state === 'running' ? NEVER : new Date(observedAt).toISOString();
}

/** A sandbox that was made from an unnamed checkpoint has the id of that checkpoint as its template. */
function templateFields({ template, baseId, checkpointId }: SandboxView) {
  return template === null
    ? { templateID: baseId ?? checkpointId ?? 'base' }
    : { templateID: template, alias: template };
}
