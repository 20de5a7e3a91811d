/**
 * The decision, whole: what is done for a session, from what is found of its sandbox and from how the last try
 * ended. Nothing here does anything. docs/sessions.md draws the table.
 */
import type { Evidence, SandboxState, TorporError } from '@torpor/protocol';

export type Found =
  /** The session never had a sandbox, or was healed of a dead one. */
  | { readonly is: 'none' }
  /** It is bound to one that nobody knows. */
  | { readonly is: 'absent' }
  | { readonly is: 'sandbox'; readonly state: SandboxState; readonly evidence: Evidence };

export type Act =
  | { readonly act: 'use' }
  | { readonly act: 'resume' }
  /** Recorded as running and seen otherwise: the engine is asked to make the two agree. */
  | { readonly act: 'repair' }
  /** An operation is under way. */
  | { readonly act: 'wait' }
  /** Nothing changes; the caller is told why, and may come again. */
  | { readonly act: 'tell' }
  | { readonly act: 'spawn'; readonly why: string };

/** Faults of the platform that somebody has to mend, and that say nothing about the sandbox. */
const PLATFORM: ReadonlySet<string> = new Set([
  'storage_readonly',
  'version_unsupported',
  'in_use',
  'unauthenticated',
  'forbidden',
]);

/** Whether a failure says nothing about the sandbox: the same may work a moment later. */
export function isPassing(failure: TorporError): boolean {
  return failure.retryable || PLATFORM.has(failure.code);
}

const BY_STATE: Readonly<Record<SandboxState, Act>> = {
  creating: { act: 'wait' },
  running: { act: 'use' },
  pausing: { act: 'wait' },
  paused: { act: 'resume' },
  resuming: { act: 'wait' },
  killing: { act: 'spawn', why: 'killed' },
  killed: { act: 'spawn', why: 'killed' },
  failed: { act: 'spawn', why: 'failed' },
  lost: { act: 'spawn', why: 'lost' },
};

/** `failure` is how the last act for this very sandbox ended, if it failed. */
export function decide(found: Found, failure?: TorporError): Act {
  if (failure?.code === 'transitioning') return { act: 'wait' };
  if (failure !== undefined && isPassing(failure)) return { act: 'tell' };
  if (found.is === 'none') return { act: 'spawn', why: 'first' };
  if (found.is === 'absent') return { act: 'spawn', why: 'not_found' };
  const { state, evidence } = found;
  if (state === 'paused' && failure !== undefined) return { act: 'spawn', why: failure.code };
  if (state !== 'running') return BY_STATE[state];
  if (evidence === 'unknown') return { act: 'tell' };
  return evidence === 'gone' || evidence === 'frozen' ? { act: 'repair' } : { act: 'use' };
}
