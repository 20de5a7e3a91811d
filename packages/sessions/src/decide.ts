/**
 * Decides what to do for a session, from the state of its sandbox and from the failure of the last attempt. A pure
 * function; docs/sessions.md has the table.
 */
import type { Evidence, SandboxState, TorporError } from '@torpor/protocol';

export type FoundSandbox =
  /** The session never had a sandbox, or the reconciler has unbound a dead one. */
  | { readonly is: 'none' }
  /** The session is bound to a sandbox that does not exist. */
  | { readonly is: 'absent' }
  | { readonly is: 'sandbox'; readonly state: SandboxState; readonly evidence: Evidence };

export type Decision =
  | { readonly action: 'use' }
  | { readonly action: 'resume' }
  /** The sandbox is recorded as running and was observed otherwise: the engine is asked to repair it. */
  | { readonly action: 'repair' }
  /** An operation is under way. */
  | { readonly action: 'wait' }
  /** Nothing changes; the caller gets the error and may try again. */
  | { readonly action: 'refuse' }
  | { readonly action: 'spawn'; readonly why: string };

/** Faults of the platform that an operator has to fix, and that say nothing about the sandbox. */
const PLATFORM_FAULTS: ReadonlySet<string> = new Set([
  'storage_readonly',
  'version_unsupported',
  'in_use',
  'unauthenticated',
  'forbidden',
]);

/** Whether a failure says nothing about the sandbox: the same call may succeed a moment later. */
export function isTransient(failure: TorporError): boolean {
  return failure.retryable || PLATFORM_FAULTS.has(failure.code);
}

const BY_STATE: Readonly<Record<SandboxState, Decision>> = {
  creating: { action: 'wait' },
  running: { action: 'use' },
  pausing: { action: 'wait' },
  paused: { action: 'resume' },
  resuming: { action: 'wait' },
  killing: { action: 'spawn', why: 'killed' },
  killed: { action: 'spawn', why: 'killed' },
  failed: { action: 'spawn', why: 'failed' },
  lost: { action: 'spawn', why: 'lost' },
};

/** `failure` is the error of the last action for this sandbox, if that action failed. */
export function decide(found: FoundSandbox, failure?: TorporError): Decision {
  if (failure?.code === 'transitioning') return { action: 'wait' };
  if (failure !== undefined && isTransient(failure)) return { action: 'refuse' };
  if (found.is === 'none') return { action: 'spawn', why: 'first' };
  if (found.is === 'absent') return { action: 'spawn', why: 'not_found' };
  const { state, evidence } = found;
  if (state === 'paused' && failure !== undefined) return { action: 'spawn', why: failure.code };
  if (state !== 'running') return BY_STATE[state];
  if (evidence === 'unknown') return { action: 'refuse' };
  return evidence === 'gone' || evidence === 'frozen' ? { action: 'repair' } : { action: 'use' };
}
