/** Translates errors that RPC implementations throw into Connect errors. */
import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import { UNKNOWN_USER_HEADER } from '@torpor/envd';
import { type ConnectCode, factsOf, TorporError } from '@torpor/protocol';
import { UnknownUser } from '../identity/users.ts';

/** Connect's enum, by the names that TorporError uses. */
const CONNECT_CODES: Readonly<Record<ConnectCode, Code>> = {
  canceled: Code.Canceled,
  unknown: Code.Unknown,
  invalid_argument: Code.InvalidArgument,
  deadline_exceeded: Code.DeadlineExceeded,
  not_found: Code.NotFound,
  already_exists: Code.AlreadyExists,
  permission_denied: Code.PermissionDenied,
  resource_exhausted: Code.ResourceExhausted,
  failed_precondition: Code.FailedPrecondition,
  aborted: Code.Aborted,
  out_of_range: Code.OutOfRange,
  unimplemented: Code.Unimplemented,
  internal: Code.Internal,
  unavailable: Code.Unavailable,
  data_loss: Code.DataLoss,
  unauthenticated: Code.Unauthenticated,
};

function toConnectError(thrown: unknown): ConnectError {
  if (thrown instanceof ConnectError) return thrown;
  const error = TorporError.from(thrown);
  return new ConnectError(
    error.message,
    CONNECT_CODES[factsOf(error.code).connect],
    error instanceof UnknownUser ? { [UNKNOWN_USER_HEADER]: '1' } : undefined,
    undefined,
    thrown,
  );
}

/** Converts errors that RPC implementations throw, before and during a stream. */
export const connectErrors: Interceptor = (next) => async (request) => {
  try {
    const response = await next(request);
    return response.stream ? { ...response, message: translateErrors(response.message) } : response;
  } catch (thrown) {
    throw toConnectError(thrown);
  }
};

async function* translateErrors<T>(messages: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (thrown) {
    throw toConnectError(thrown);
  }
}
