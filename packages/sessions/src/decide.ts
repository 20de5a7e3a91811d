/**
 * The decision, whole: what is done for a session, from what is found of its sandbox and from how the last try
 * ended. Nothing here does anything. docs/sessions.md draws the table.
 */
import type { Evidence, SandboxState, TorporError } from '@torpor/protocol';

export type FoundSandbox =
  /** The session never had a sandbox, or was healed of a dead one. */
  | { readonly is: 'none' }
  /** It is bound to one that nobody knows. */
  | { readonly is: 'absent' }
  | { readonly is: 'sandbox'; readonly state: SandboxState; readonly evidence: Evidence };

export type Decision =
  | { readonly action: 'use' }
  | { readonly action: 'resume' }
  /** Recorded as running and seen otherwise: the engine is asked to make the two agree. */
  | { readonly action: 'repair' }
  /** An operation is under way. */
  | { readonly action: 'wait' }
  /** Nothing changes; the caller is told why, and may come again. */
  | { readonly action: 'refuse' }
  | { readonly action: 'spawn'; readonly why: string };

/** Faults of the platform that somebody has to mend, and that say nothing about the sandbox. */
const PLATFORM_FAULTS: ReadonlySet<string> = new Set([
  'storage_readonly',
  'version_unsupported',
  'in_use',
  'unauthenticated',
  'forbidden',
]);

/** Whether a failure says nothing about the sandbox: the same may work a moment later. */
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

/** `failure` is how the last act for this very sandbox ended, if it failed. */
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
