/**
 * Converts errors of the `e2b` package by their type, never by their text: an application may say "not found" too, and an
 * id may contain 404.
 */
import { type ErrorCode, TorporError } from '@torpor/protocol';
import {
  AuthenticationError,
  CommandExitError,
  FileNotFoundError,
  InvalidArgumentError,
  NotEnoughSpaceError,
  RateLimitError,
  SandboxNotFoundError,
  ServiceBusyError,
  TimeoutError,
} from 'e2b';

/** The number of nested causes that are examined. */
const MAX_DEPTH = 5;

/** Whether the provider itself reports that the sandbox does not exist, also when other errors wrap that error. */
export function isGone(thrown: unknown): boolean {
  for (let error = thrown, depth = 0; error instanceof Error && depth < MAX_DEPTH; depth++) {
    // A missing program or file in the sandbox says nothing about the sandbox itself.
    if (error instanceof CommandExitError || error instanceof FileNotFoundError) return false;
    if (error instanceof SandboxNotFoundError) return true;
    error = error.cause;
  }
  return false;
}

const BY_TYPE: readonly (readonly [new (...args: never[]) => Error, ErrorCode])[] = [
  [CommandExitError, 'no_answer'],
  [FileNotFoundError, 'not_found'],
  [SandboxNotFoundError, 'expired'],
  [TimeoutError, 'timeout'],
  [RateLimitError, 'capacity'],
  [ServiceBusyError, 'capacity'],
  [AuthenticationError, 'forbidden'],
  [NotEnoughSpaceError, 'storage_full'],
  [InvalidArgumentError, 'invalid_request'],
];

/** An unknown error means that the provider could not be reached. `what` names the failed action. */
export function providerFailure(thrown: unknown, what: string): TorporError {
  if (thrown instanceof TorporError) return thrown;
  const code = isGone(thrown)
    ? 'expired'
    : (BY_TYPE.find(([type]) => thrown instanceof type)?.[1] ?? 'unreachable');
  return new TorporError(code, `${what}: ${MESSAGES[code] ?? 'the provider does not answer as expected.'}`, {
    cause: thrown,
  });
}

const MESSAGES: Partial<Readonly<Record<ErrorCode, string>>> = {
  expired: 'the provider has no such sandbox.',
  timeout: 'the provider did not answer in time.',
  capacity: 'the provider is too busy.',
  forbidden: 'the provider refuses the key.',
  storage_full: 'the provider has no space left.',
  invalid_request: 'the provider rejects the request.',
};
