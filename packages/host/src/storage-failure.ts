/** What a failed file system call means to whoever asked, by its errno code. */
import { type CheckpointId, type ErrorCode, TorporError } from '@torpor/protocol';

const WHEN_WRITING: Readonly<Record<string, ErrorCode>> = {
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EROFS: 'storage_readonly',
};

/**
 * Files that another user owns, paths that were made longer than the kernel takes in one call, and a
 * workspace that was taken away as a whole.
 */
const WHEN_CAPTURING: Readonly<Record<string, ErrorCode>> = {
  ...WHEN_WRITING,
  ENOENT: 'conflict',
  EACCES: 'conflict',
  EPERM: 'conflict',
  ENAMETOOLONG: 'conflict',
};

const WHEN_READING: Readonly<Record<string, ErrorCode>> = {
  ENOENT: 'checkpoint_missing',
  ENOTDIR: 'checkpoint_corrupt',
  EISDIR: 'checkpoint_corrupt',
  ELOOP: 'checkpoint_corrupt',
};

const MESSAGES: Partial<Record<ErrorCode, string>> = {
  storage_full: 'There is no room left',
  storage_readonly: 'The disk is read-only',
  conflict: 'A file of the workspace cannot be copied',
  checkpoint_missing: 'Part of the checkpoint is not there',
  checkpoint_corrupt: 'Part of the checkpoint is of another kind than it was',
};

export function errnoOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !('code' in thrown)) return undefined;
  return typeof thrown.code === 'string' && /^E[A-Z0-9]+$/.test(thrown.code) ? thrown.code : undefined;
}

export function isMissing(thrown: unknown): boolean {
  return errnoOf(thrown) === 'ENOENT';
}

/** Runs a call that writes; a full or read-only disk becomes typed, and everything else stays as it is. */
export async function writing<T>(path: string, work: () => Promise<T>): Promise<T> {
  return work().catch((thrown: unknown) => {
    throw typed(thrown, WHEN_WRITING, path) ?? thrown;
  });
}

/** Runs a call that copies a workspace. */
export async function capturing<T>(path: string, work: () => Promise<T>): Promise<T> {
  return work().catch((thrown: unknown) => {
    throw typed(thrown, WHEN_CAPTURING, path) ?? thrown;
  });
}

/**
 * Runs a call that reads a checkpoint, and may write what it read. Absence and a thing of the wrong kind
 * are proofs against the checkpoint; any other code says only that it could not be read.
 */
export async function readingCheckpoint<T>(
  checkpointId: CheckpointId,
  path: string,
  work: () => Promise<T>,
): Promise<T> {
  return work().catch((thrown: unknown) => {
    const known = typed(thrown, { ...WHEN_WRITING, ...WHEN_READING }, path)?.with({ checkpointId });
    if (known !== undefined || errnoOf(thrown) === undefined) throw known ?? thrown;
    throw new TorporError(
      'checkpoint_unreadable',
      `Checkpoint ${checkpointId} cannot be read: ${errnoOf(thrown)}.`,
      {
        checkpointId,
        details: { path },
        cause: thrown,
      },
    );
  });
}

function typed(
  thrown: unknown,
  codes: Readonly<Record<string, ErrorCode>>,
  place: string,
): TorporError | undefined {
  const code = codes[errnoOf(thrown) ?? ''];
  if (code === undefined) return undefined;
  const path = (thrown as NodeJS.ErrnoException).path ?? place;
  return new TorporError(code, `${MESSAGES[code]}: ${path}.`, { details: { path }, cause: thrown });
}
