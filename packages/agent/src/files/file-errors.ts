/** Translates errors of system calls on files into TorporErrors. */
import { type ErrorCode, TorporError } from '@torpor/protocol';

const CODE_BY_ERRNO: Readonly<Record<string, ErrorCode>> = {
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
  // The upload is incomplete, or is not the gzip data that its header announces.
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

const REASONS: Partial<Readonly<Record<ErrorCode, string>>> = {
  not_found: 'does not exist',
  forbidden: 'may not be used by this user',
  conflict: 'is in the way',
  storage_full: 'cannot be written: not enough disk space',
};

/** The error of a system call on a path. */
export function toFileError(thrown: unknown, path: string): TorporError {
  if (thrown instanceof TorporError) return thrown;
  const errno = errnoOf(thrown);
  const code = CODE_BY_ERRNO[errno ?? ''];
  if (code === undefined) return TorporError.from(thrown);
  return new TorporError(code, `${path} ${REASONS[code] ?? `cannot be used (${errno})`}`, { cause: thrown });
}

export function errnoOf(thrown: unknown): string | undefined {
  const code = (thrown as NodeJS.ErrnoException | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

/** Runs a step on a path and translates its error. */
export async function withFileErrors<T>(path: string, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (thrown) {
    throw toFileError(thrown, path);
  }
}
