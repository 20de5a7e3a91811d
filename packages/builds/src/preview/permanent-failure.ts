/** Tells whether an error proves that a sandbox is lost for good (R34), or only that it could not be reached (R35). */
import { type ErrorCode, TorporError } from '@torpor/protocol';

/**
 * The subject of each error code. An error about the sandbox or its checkpoints that is not retryable is permanent: the
 * same request will fail again. Errors about the server, its disk, the caller or the application prove nothing about
 * the sandbox, retryable or not.
 */
const SUBJECT: Readonly<Record<ErrorCode, 'the sandbox' | 'something else'>> = {
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

/** Error classes of other providers' clients for a missing sandbox. */
const NOT_FOUND_CLASSES: ReadonlySet<string> = new Set([
  'NotFoundException',
  'NotFoundError',
  'SandboxNotFoundException',
  'SandboxNotFoundError',
]);

/** The message that some providers send instead of a type. It must name the sandbox and nothing else. */
const NOT_FOUND_MESSAGE = /^(the |paused )*sandbox( "?[\w-]+"?)? (was |is )?not found\.?$/i;

/** A longer chain of causes has a loop. */
const MAX_DEPTH = 10;

/**
 * The error in the chain of causes that proves that the sandbox is lost; undefined when none does. `thrown` must be the
 * error of *connecting*: a later 404 of the application or of a command proves nothing.
 */
export function permanentFailureOf(thrown: unknown): TorporError | undefined {
  for (const error of causesOf(thrown)) {
    if (error instanceof TorporError) {
      if (SUBJECT[error.code] === 'the sandbox' && !error.retryable) return error;
    } else if (saysNotFound(error)) {
      return new TorporError('not_found', 'The provider has no such sandbox.', { cause: error });
    }
  }
  return undefined;
}

/** The first TorporError in the chain of causes. */
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
  return (
    NOT_FOUND_CLASSES.has(error.name) ||
    NOT_FOUND_CLASSES.has(error.constructor.name) ||
    NOT_FOUND_MESSAGE.test(error.message)
  );
}
