/** Whether a failure proves that a sandbox is gone for good (R34), or only that it could not be reached (R35). */
import { type ErrorCode, TorporError } from '@torpor/protocol';

const GONE: ReadonlySet<ErrorCode> = new Set([
  'not_found',
  'expired',
  'killed',
  'lost',
  'checkpoint_missing',
]);

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

/** `thrown` is what *connecting* failed with: a 404 of the application, or of a command, comes later and is no proof. */
export function provesGone(thrown: unknown): boolean {
  let error = thrown;
  for (let depth = 0; error instanceof Error && depth < MAX_DEPTH; depth++) {
    if (error instanceof TorporError ? GONE.has(error.code) : saysNotFound(error)) return true;
    error = error.cause;
  }
  return false;
}

function saysNotFound(error: Error): boolean {
  const { status, statusCode } = error as { readonly status?: unknown; readonly statusCode?: unknown };
  if (status === 404 || statusCode === 404) return true;
  return CLASSES.has(error.name) || CLASSES.has(error.constructor.name) || SENTENCE.test(error.message);
}
