/** Converts the failure of a call on a file or directory of the server into an error, by its errno. */
import { errnoOf } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const FULL = new Set(['ENOSPC', 'EDQUOT']);
/** All of these have the same remedy: another path, or other permissions. */
const UNWRITABLE = new Set([
  'EROFS',
  'EACCES',
  'EPERM',
  'ENOTDIR',
  'EEXIST',
  'EISDIR',
  'ENOENT',
  'ELOOP',
  'ENAMETOOLONG',
]);

export function fileError(thrown: unknown, path: string): TorporError {
  if (thrown instanceof TorporError) return thrown;
  const code = errnoOf(thrown) ?? 'unknown';
  if (FULL.has(code)) return storageFull(path, thrown);
  if (UNWRITABLE.has(code)) return storageReadonly(path, thrown, code);
  return new TorporError('internal', `${path} could not be used: ${code}.`, {
    details: { path },
    cause: thrown,
  });
}

export function storageFull(path: string, cause: unknown): TorporError {
  return new TorporError('storage_full', `There is no space left for ${path}.`, { details: { path }, cause });
}

export function storageReadonly(path: string, cause: unknown, code?: string): TorporError {
  const why = code === undefined ? '' : ` (${code})`;
  return new TorporError('storage_readonly', `${path} cannot be written${why}.`, {
    details: { path },
    cause,
  });
}
