/**
 * What a provider's failures mean, told by the type of the error and never by its text: an application may say
 * "not found" too, and an id may have 404 in it.
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

/** Errors are wrapped, but not for ever. */
const DEEPEST = 5;

/** Whether the provider itself says that there is no such sandbox, in its own words or wrapped in others. */
export function isGone(thrown: unknown): boolean {
  for (let error = thrown, depth = 0; error instanceof Error && depth < DEEPEST; depth++) {
    // What a program inside or its files are missing says nothing about the sandbox.
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

/** Everything that is not known for something better is that the provider could not be asked. */
export function providerFailure(thrown: unknown, what: string): TorporError {
  if (thrown instanceof TorporError) return thrown;
  const code = isGone(thrown)
    ? 'expired'
    : (BY_TYPE.find(([type]) => thrown instanceof type)?.[1] ?? 'unreachable');
  return new TorporError(code, `${what}: ${WORDS[code] ?? 'the provider could not be asked.'}`, {
    cause: thrown,
  });
}

const WORDS: Partial<Readonly<Record<ErrorCode, string>>> = {
  expired: 'the provider has no such sandbox.',
  timeout: 'the provider did not answer in time.',
  capacity: 'the provider is too busy.',
  forbidden: 'the provider refuses the key.',
  storage_full: 'the provider has no space left.',
  invalid_request: 'the provider does not take the request.',
};
