/**
 * Turns failed file system calls into typed errors about a checkpoint, by errno code.
 *
 * For a call that reads, an absent entry and an entry of the wrong type prove damage. Every other code, known or not, proves
 * nothing about the checkpoint: the store could not be read.
 */

import { DAMAGE_BY_ERRNO, type Damage } from '@torpor/engine';
import { errnoOf } from '@torpor/host';
import { type CheckpointId, type ErrorCode, TorporError } from '@torpor/protocol';

/** The checkpoint, entry or file that a call works on, for the details of its error. */
export interface Place {
  /** Absent when a call is about the store as a whole. */
  readonly checkpointId?: CheckpointId;
  readonly location: string;
  /** The content entry at fault, as its manifest names it. */
  readonly entry?: string;
  /** The store's own file at fault. */
  readonly record?: string;
}

const WHEN_WRITING: Readonly<Record<string, ErrorCode>> = {
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EROFS: 'storage_readonly',
  EACCES: 'storage_readonly',
  EPERM: 'storage_readonly',
};

/** Maps the error of a call that reads to a typed error. Typed errors pass unchanged. */
export async function mapReadErrors<T>(place: Place, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    throw typed(thrown, place, DAMAGE_BY_ERRNO);
  }
}

/** Maps the error of a call that writes to `path` to a typed error. */
export async function mapWriteErrors<T>(place: Place, path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    throw typed(thrown, place, WHEN_WRITING, path);
  }
}

export function missing(place: Place, cause?: unknown): TorporError {
  return failure('checkpoint_missing', `${subject(place)} is not there.`, place, { cause });
}

export function corrupt(place: Place, damage: Damage, cause?: unknown): TorporError {
  return failure('checkpoint_corrupt', `${subject(place)} ${DAMAGE_TEXT[damage]}.`, place, { damage, cause });
}

export function unreadable(place: Place, why: string, cause?: unknown): TorporError {
  return failure('checkpoint_unreadable', `${subject(place)} could not be read: ${why}.`, place, { cause });
}

const DAMAGE_TEXT: Readonly<Record<Damage, string>> = {
  record: 'is not what was written when it was sealed',
  type: 'is now of another kind',
  size: 'has another size than when it was sealed',
  target: 'points elsewhere than when it was sealed',
  unexpected: 'was not there when it was sealed',
  digest: 'has other content than when its digest was recorded',
};

function typed(
  thrown: unknown,
  place: Place,
  codes: Readonly<Record<string, ErrorCode>>,
  path?: string,
): unknown {
  const errno = errnoOf(thrown);
  if (errno === undefined) return thrown;
  switch (codes[errno]) {
    case 'checkpoint_missing':
      return missing(place, thrown);
    case 'checkpoint_corrupt':
      return corrupt(place, 'type', thrown);
    case 'storage_full':
      return failure('storage_full', `There is no room left for ${path}.`, place, { path, cause: thrown });
    case 'storage_readonly':
      return failure('storage_readonly', `${path} may not be opened or written.`, place, {
        path,
        cause: thrown,
      });
    default:
      return path === undefined
        ? unreadable(place, errno, thrown)
        : failure('checkpoint_unreadable', `The checkpoint store failed at ${path}: ${errno}.`, place, {
            path,
            cause: thrown,
          });
  }
}

function subject({ checkpointId, entry, record }: Place): string {
  if (checkpointId === undefined) return 'The checkpoint store';
  const part = entry ?? record;
  return part === undefined
    ? `Checkpoint ${checkpointId}`
    : `${JSON.stringify(part)} of checkpoint ${checkpointId}`;
}

function failure(
  code: ErrorCode,
  message: string,
  { checkpointId, location, entry, record }: Place,
  { damage, path, cause }: { damage?: Damage; path?: string | undefined; cause?: unknown },
): TorporError {
  return new TorporError(code, message, {
    ...(checkpointId === undefined ? {} : { checkpointId }),
    details: {
      location,
      ...(entry === undefined ? {} : { entry }),
      ...(record === undefined ? {} : { record }),
      ...(damage === undefined ? {} : { damage }),
      ...(path === undefined ? {} : { path }),
    },
    cause,
  });
}
