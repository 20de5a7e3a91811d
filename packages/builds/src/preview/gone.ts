/** Whether a failure proves that a sandbox is gone for good (R34), or only that it could not be reached (R35). */
import { type ErrorCode, TorporError } from '@torpor/protocol';

/**
 * What a failure of each code is about. A failure about the sandbox or its checkpoints that is not retryable is
 * permanent: the same request will fail again. Failures about the server, its disk, its caller or the application
 * prove nothing about the sandbox, whatever they say about retrying.
 */
const ABOUT: Readonly<Record<ErrorCode, 'the sandbox' | 'something else'>> = {
  not_found: 'the sandbox',
  expired: 'the sandbox',
  killed: 'the sandbox',
  lost: 'the sandbox',
  unreachable: 'the sandbox',
  checkpoint_missing: 'the sandbox',
  checkpoint_corrupt: 'the sandbox',
  checkpoint_unreadable: 'the sandbox',
  checkpoint_incompatible: 'the sandbox',
  capability_unsupported: 'the sandbox',
  transitioning: 'something else',
  conflict: 'something else',
  idempotency_mismatch: 'something else',
  quota_exceeded: 'something else',
  capacity: 'something else',
  storage_full: 'something else',
  storage_readonly: 'something else',
  in_use: 'something else',
  version_unsupported: 'something else',
  timeout: 'something else',
  port_closed: 'something else',
  no_answer: 'something else',
  invalid_request: 'something else',
  unauthenticated: 'something else',
  forbidden: 'something else',
  internal: 'something else',
};

/** Classes that clients of other providers throw when there is no such sandbox. */
const CLASSES: ReadonlySet<string> = new Set([
  'NotFoundException',
  'NotFoundError',
  'SandboxNotFoundException',
  'SandboxNotFoundError',
]);

/** The one sentence some providers say instead of a type. It must be about the sandbox and nothing else. */
const SENTENCE = /^(the |paused )*sandbox( "?[\w-]+"?)? (was |is )?not found\.?$/i;

/** A chain longer than this has a loop in it. */
const MAX_DEPTH = 10;

/**
 * The failure in the chain of causes that proves the sandbox gone; undefined when none does. `thrown` is what
 * *connecting* failed with: a 404 of the application, or of a command, comes later and is no proof.
 */
export function proofOfAbsence(thrown: unknown): TorporError | undefined {
  for (const error of causesOf(thrown)) {
    if (error instanceof TorporError) {
      if (ABOUT[error.code] === 'the sandbox' && !error.retryable) return error;
    } else if (saysNotFound(error)) {
      return new TorporError('not_found', 'The provider has no such sandbox.', { cause: error });
    }
  }
  return undefined;
}

/** The first failure in the chain of causes that the platform gave a code. */
export function platformErrorOf(thrown: unknown): TorporError {
  const typed = causesOf(thrown).find((error) => error instanceof TorporError);
  return typed ?? TorporError.from(thrown);
}

function causesOf(thrown: unknown): Error[] {
  const causes: Error[] = [];
  for (let error = thrown; error instanceof Error && causes.length < MAX_DEPTH; error = error.cause) {
    causes.push(error);
  }
  return causes;
}

function saysNotFound(error: Error): boolean {
  const { status, statusCode } = error as { readonly status?: unknown; readonly statusCode?: unknown };
  if (status === 404 || statusCode === 404) return true;
  return CLASSES.has(error.name) || CLASSES.has(error.constructor.name) || SENTENCE.test(error.message);
}
