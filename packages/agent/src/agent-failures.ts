/** How failures inside the agent look on its two faces: Connect errors and `{"code", "message"}` bodies. */
import { Code, ConnectError, type Interceptor } from '@connectrpc/connect';
import { UNKNOWN_USER_HEADER } from '@torpor/envd';
import { type ConnectCode, type ErrorCode, factsOf, TorporError } from '@torpor/protocol';
import { UnknownUser } from './identity/users.ts';

const BY_ERRNO: Readonly<Record<string, ErrorCode>> = {
  ENOENT: 'not_found',
  EACCES: 'forbidden',
  EPERM: 'forbidden',
  EROFS: 'forbidden',
  EEXIST: 'conflict',
  EBUSY: 'conflict',
  ENOTEMPTY: 'conflict',
  ENOTDIR: 'invalid_request',
  // A socket cannot be opened.
  ENXIO: 'invalid_request',
  EISDIR: 'invalid_request',
  EINVAL: 'invalid_request',
  ENAMETOOLONG: 'invalid_request',
  ELOOP: 'invalid_request',
  EXDEV: 'invalid_request',
  ERR_INVALID_ARG_VALUE: 'invalid_request',
  // What a client sent was broken off, or is not the gzip it said it was.
  ERR_STREAM_PREMATURE_CLOSE: 'invalid_request',
  ECONNRESET: 'invalid_request',
  Z_DATA_ERROR: 'invalid_request',
  Z_BUF_ERROR: 'invalid_request',
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EFBIG: 'storage_full',
  EMFILE: 'capacity',
  ENFILE: 'capacity',
};

const WORDS: Partial<Readonly<Record<ErrorCode, string>>> = {
  not_found: 'does not exist',
  forbidden: 'may not be used by this user',
  conflict: 'is in the way',
  storage_full: 'cannot be written: not enough disk space',
};

/** What a system call said about a path. */
export function fileFailure(thrown: unknown, path: string): TorporError {
  if (thrown instanceof TorporError) return thrown;
  const errno = errnoOf(thrown);
  const code = BY_ERRNO[errno ?? ''];
  if (code === undefined) return TorporError.from(thrown);
  return new TorporError(code, `${path} ${WORDS[code] ?? `cannot be used (${errno})`}`, { cause: thrown });
}

export function errnoOf(thrown: unknown): string | undefined {
  const code = (thrown as NodeJS.ErrnoException | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

/** Runs a step on a path and tells its failure in our terms. */
export async function onPath<T>(path: string, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (thrown) {
    throw fileFailure(thrown, path);
  }
}

/** Connect's own enum, by the names that our errors use. */
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

function connectFailure(thrown: unknown): ConnectError {
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

/** Lets implementations throw our errors, before and in the middle of a stream. */
export const speakConnect: Interceptor = (next) => async (request) => {
  try {
    const response = await next(request);
    return response.stream ? { ...response, message: translated(response.message) } : response;
  } catch (thrown) {
    throw connectFailure(thrown);
  }
};

async function* translated<T>(messages: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (thrown) {
    throw connectFailure(thrown);
  }
}
