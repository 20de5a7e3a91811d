/** What an agent's refusals and silences mean to us: Connect codes, HTTP statuses and socket errors. */
import { Code, ConnectError } from '@connectrpc/connect';
import { type ErrorCode, TorporError } from '@torpor/protocol';
import { UNKNOWN_USER_HEADER } from './wire-names.ts';

const BY_CONNECT_CODE: Readonly<Record<Code, ErrorCode>> = {
  [Code.Canceled]: 'timeout',
  [Code.Unknown]: 'internal',
  [Code.InvalidArgument]: 'invalid_request',
  [Code.DeadlineExceeded]: 'timeout',
  [Code.NotFound]: 'not_found',
  [Code.AlreadyExists]: 'conflict',
  [Code.PermissionDenied]: 'forbidden',
  [Code.ResourceExhausted]: 'capacity',
  [Code.FailedPrecondition]: 'conflict',
  // A connection that broke: nothing is known of what the agent did.
  [Code.Aborted]: 'unreachable',
  [Code.OutOfRange]: 'invalid_request',
  [Code.Unimplemented]: 'capability_unsupported',
  [Code.Internal]: 'internal',
  [Code.Unavailable]: 'unreachable',
  [Code.DataLoss]: 'internal',
  [Code.Unauthenticated]: 'unauthenticated',
};

/** Whatever a call to an agent threw, as our error. */
export function agentError(thrown: unknown): TorporError {
  if (thrown instanceof TorporError) return thrown;
  if (thrown instanceof ConnectError) {
    const code = refusedUser(BY_CONNECT_CODE[thrown.code], thrown.metadata.has(UNKNOWN_USER_HEADER));
    // What a broken socket says of itself helps nobody.
    return code === 'unreachable'
      ? silence(thrown)
      : new TorporError(code, thrown.rawMessage, { cause: thrown });
  }
  if (isAbort(thrown))
    return new TorporError('timeout', 'The call to the agent was stopped.', { cause: thrown });
  return silence(thrown);
}

function silence(cause: unknown): TorporError {
  return new TorporError('unreachable', 'The agent of the sandbox did not answer.', { cause });
}

const BY_STATUS: ReadonlyMap<number, ErrorCode> = new Map([
  [400, 'invalid_request'],
  [401, 'unauthenticated'],
  [403, 'forbidden'],
  [404, 'not_found'],
  [405, 'invalid_request'],
  [409, 'conflict'],
  [413, 'invalid_request'],
  [416, 'invalid_request'],
  [507, 'storage_full'],
]);

/** The error in an answer of a plain HTTP call, `{"code", "message"}`. */
export function errorOfStatus(status: number, message: string, isUnknownUser: boolean): TorporError {
  return new TorporError(refusedUser(BY_STATUS.get(status) ?? 'internal', isUnknownUser), message);
}

/** On this wire a user who is not there is refused in the same way as a token that is not taken. */
function refusedUser(code: ErrorCode, isUnknownUser: boolean): ErrorCode {
  return code === 'unauthenticated' && isUnknownUser ? 'invalid_request' : code;
}

function isAbort(thrown: unknown): boolean {
  return thrown instanceof Error && (thrown.name === 'AbortError' || thrown.name === 'TimeoutError');
}
