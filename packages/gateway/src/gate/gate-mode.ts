/**
 * The modes of a sandbox's gate, and of the gate's attempt to wake the sandbox. Events that a table does not list are
 * ignored.
 */
import type { TorporError } from '@torpor/protocol';
import type { SandboxInfo } from '../sandbox-directory.ts';

/** One run of the sandbox as this gateway knows it. Compared by identity: the same sandbox seen later is another run. */
export interface SandboxRun {
  readonly sandbox: SandboxInfo;
}

export type GateModeName =
  /** Requests are admitted, but the gateway does not know whether the sandbox runs. The next request finds out. */
  | 'unknown'
  /** Requests are admitted to the sandbox, which runs. */
  | 'open'
  /** A pause has begun. Only requests that were queued before it are admitted, so that frequent pauses starve none. */
  | 'draining'
  /** No request is admitted until the gate opens. */
  | 'closed';

export interface GateMode {
  readonly name: GateModeName;
  /** Always present in `open`, never in `unknown`. A closing gate keeps it until its exchanges are aborted or the run ends. */
  readonly run: SandboxRun | undefined;
}

export type GateEvent =
  /** The sandbox was seen running. */
  | 'running'
  /** A connection attempt has shown that the sandbox is not the run that the gateway knew. */
  | 'run_ended'
  /** The engine begins a pause. */
  | 'close'
  /** No exchange is left that the pause waits for, or its time is over. */
  | 'drained'
  /** The engine has frozen the sandbox, or the server stops: every connection is reset. */
  | 'exchanges_aborted'
  /** The engine ends the pause, whatever became of it. */
  | 'open';

const GATE_TRANSITIONS: Readonly<Record<GateModeName, Readonly<Partial<Record<GateEvent, GateModeName>>>>> = {
  unknown: { running: 'open', close: 'draining' },
  open: { run_ended: 'unknown', close: 'draining', exchanges_aborted: 'unknown', open: 'unknown' },
  draining: { run_ended: 'draining', drained: 'closed', exchanges_aborted: 'closed', open: 'unknown' },
  closed: { run_ended: 'closed', exchanges_aborted: 'closed', open: 'unknown' },
};

export const INITIAL_GATE_MODE: GateMode = { name: 'unknown', run: undefined };

/** `seen` is the sandbox of a `running` event. */
export function gateModeAfter(mode: GateMode, event: GateEvent, seen?: SandboxInfo): GateMode {
  const name = GATE_TRANSITIONS[mode.name][event];
  if (name === undefined) return mode;
  if (event === 'running') return { name, run: seen === undefined ? undefined : { sandbox: seen } };
  return { name, run: event === 'close' || event === 'drained' ? mode.run : undefined };
}

export type WakeMode =
  | { readonly name: 'idle' }
  /** One attempt is under way, for all requests that wait. */
  | { readonly name: 'waking' }
  /** The last attempt failed. Requests within `failureMs` get the same error without another attempt. */
  | { readonly name: 'failed'; readonly error: TorporError; readonly at: number };

export type WakeEvent =
  | { readonly type: 'started' }
  | { readonly type: 'succeeded' }
  | { readonly type: 'failed'; readonly error: TorporError; readonly at: number }
  /** A pause has changed the sandbox, so that an earlier failure says nothing about the next attempt. */
  | { readonly type: 'gate_opened' };

const WAKE_TRANSITIONS: Readonly<
  Record<WakeMode['name'], Readonly<Partial<Record<WakeEvent['type'], WakeMode['name']>>>>
> = {
  idle: { started: 'waking' },
  waking: { succeeded: 'idle', failed: 'failed' },
  failed: { started: 'waking', gate_opened: 'idle' },
};

export function wakeModeAfter(mode: WakeMode, event: WakeEvent): WakeMode {
  const name = WAKE_TRANSITIONS[mode.name][event.type];
  if (name === undefined) return mode;
  if (name !== 'failed') return { name };
  return event.type === 'failed' ? { name, error: event.error, at: event.at } : mode;
}
