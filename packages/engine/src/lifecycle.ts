/**
 * The whole lifecycle: which command leads from which state to which, and the event that records it. This file has
 * no effects; effects happen elsewhere and report back as commands.
 */
import { type ErrorCode, type EventType, isTerminal, type SandboxState } from '@torpor/protocol';

/** What callers and policies request. */
export type LifecycleRequest =
  | 'pause'
  | 'resume'
  | 'snapshot'
  | 'fork'
  | 'rollback'
  | 'set_lifetime'
  | 'set_retention'
  | 'set_network'
  | 'set_services'
  | 'kill';

/** The outcome of an effect or of an observation. */
type Outcome =
  | 'started'
  | 'start_failed'
  | 'sealed'
  | 'seal_failed'
  | 'snapshotted'
  | 'recovered'
  | 'lost'
  | 'destroyed';

export type Command = LifecycleRequest | Outcome;

interface Step {
  readonly to: SandboxState;
  readonly event: EventType;
}

/** The request is allowed and changes no state; its effects report their own outcomes. */
const allowed = 'allowed';
/** The sandbox is in the requested state already, so a repeated request is no error. */
const already = 'already';

type Entry = Step | typeof allowed | typeof already;

const step = (to: SandboxState, event: EventType): Step => ({ to, event });
const kill = step('killing', 'sandbox.killing');
const lost = step('lost', 'sandbox.lost');
const recovered = step('paused', 'sandbox.recovered');

export const LIFECYCLE: Readonly<Record<SandboxState, Readonly<Partial<Record<Command, Entry>>>>> = {
  creating: {
    started: step('running', 'sandbox.started'),
    start_failed: step('failed', 'sandbox.failed'),
    kill,
  },
  running: {
    pause: step('pausing', 'sandbox.pausing'),
    resume: already,
    snapshot: allowed,
    snapshotted: step('running', 'checkpoint.sealed'),
    fork: allowed,
    rollback: step('pausing', 'sandbox.pausing'),
    set_lifetime: step('running', 'lifetime.set'),
    set_retention: step('running', 'retention.set'),
    set_network: step('running', 'network.set'),
    set_services: step('running', 'services.set'),
    recovered,
    lost,
    kill,
  },
  pausing: {
    sealed: step('paused', 'sandbox.paused'),
    seal_failed: step('running', 'sandbox.pause_failed'),
    recovered,
    lost,
    kill,
  },
  paused: {
    pause: already,
    resume: step('resuming', 'sandbox.resuming'),
    snapshot: allowed,
    fork: allowed,
    rollback: step('resuming', 'sandbox.resuming'),
    set_lifetime: step('paused', 'lifetime.set'),
    set_retention: step('paused', 'retention.set'),
    set_network: step('paused', 'network.set'),
    set_services: step('paused', 'services.set'),
    lost,
    kill,
  },
  resuming: {
    started: step('running', 'sandbox.resumed'),
    start_failed: step('paused', 'sandbox.resume_failed'),
    lost,
    kill,
  },
  // A kill is repeated until the runtime has answered.
  killing: { destroyed: step('killed', 'sandbox.killed'), kill: allowed },
  killed: { kill: already },
  failed: { kill: already },
  lost: { kill: already },
};

export type Decision =
  | ({ readonly kind: 'step' } & Step)
  | { readonly kind: 'allowed' }
  | { readonly kind: 'already' }
  | { readonly kind: 'refused'; readonly code: ErrorCode };

export function decide(state: SandboxState, command: Command): Decision {
  const entry = LIFECYCLE[state][command];
  if (entry === undefined) return { kind: 'refused', code: refusal(state) };
  if (entry === allowed || entry === already) return { kind: entry };
  return { kind: 'step', ...entry };
}

/** Why a sandbox in this state refuses a command that its row of the table does not list. */
export function refusal(state: SandboxState): ErrorCode {
  if (state === 'killed' || state === 'killing') return 'killed';
  if (state === 'lost') return 'lost';
  if (isTerminal(state) || state === 'running' || state === 'paused') return 'conflict';
  return 'transitioning';
}
