/** Translates errors of calls to an agent (Connect codes, HTTP statuses, socket errors) into TorporErrors. */
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
  // The connection broke, so it is unknown what the agent did.
  [Code.Aborted]: 'unreachable',
  [Code.OutOfRange]: 'invalid_request',
  [Code.Unimplemented]: 'capability_unsupported',
  [Code.Internal]: 'internal',
  [Code.Unavailable]: 'unreachable',
  [Code.DataLoss]: 'internal',
  [Code.Unauthenticated]: 'unauthenticated',
};

/** Converts whatever a call to an agent threw. */
export function agentError(thrown: unknown): TorporError {
  if (thrown instanceof TorporError) return thrown;
  if (thrown instanceof ConnectError) {
    const code = codeForUser(BY_CONNECT_CODE[thrown.code], thrown.metadata.has(UNKNOWN_USER_HEADER));
    // The message of a broken socket does not help the caller.
    return code === 'unreachable'
      ? unreachable(thrown)
      : new TorporError(code, thrown.rawMessage, { cause: thrown });
  }
  if (isAbort(thrown))
    return new TorporError('timeout', 'The call to the agent was stopped.', { cause: thrown });
  return unreachable(thrown);
}

function unreachable(cause: unknown): TorporError {
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

/** The error of a plain HTTP call, whose body is `{"code", "message"}`. */
export function errorOfStatus(status: number, message: string, isUnknownUser: boolean): TorporError {
  return new TorporError(codeForUser(BY_STATUS.get(status) ?? 'internal', isUnknownUser), message);
}

/** E2B's protocol answers 401 for an unknown user as well as for a wrong token. A header of ours tells them apart. */
function codeForUser(code: ErrorCode, isUnknownUser: boolean): ErrorCode {
  return code === 'unauthenticated' && isUnknownUser ? 'invalid_request' : code;
}

function isAbort(thrown: unknown): boolean {
  return thrown instanceof Error && (thrown.name === 'AbortError' || thrown.name === 'TimeoutError');
}
