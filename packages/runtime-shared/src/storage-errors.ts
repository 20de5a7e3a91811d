/** Turns the errno code of a failed file system call into an error that says what it means for the sandbox. */
import { DAMAGE_BY_ERRNO } from '@torpor/engine';
import { errnoOf } from '@torpor/host';
import { type CheckpointId, type ErrorCode, TorporError } from '@torpor/protocol';

const WRITE_ERRORS: Readonly<Record<string, ErrorCode>> = {
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EROFS: 'storage_readonly',
};

/**
 * A workspace may contain files that another user owns and paths that are longer than the kernel accepts in one call.
 * A program in the sandbox may also have removed the whole workspace.
 */
const CAPTURE_ERRORS: Readonly<Record<string, ErrorCode>> = {
  ...WRITE_ERRORS,
  ENOENT: 'conflict',
  EACCES: 'conflict',
  EPERM: 'conflict',
  ENAMETOOLONG: 'conflict',
};

const MESSAGES: Partial<Record<ErrorCode, string>> = {
  storage_full: 'There is no room left',
  storage_readonly: 'The disk is read-only',
  conflict: 'A file of the workspace cannot be copied',
  checkpoint_missing: 'Part of the checkpoint is missing',
  checkpoint_corrupt: 'Part of the checkpoint is of another kind than when it was sealed',
};

/** Runs work that writes below `path`. A full or read-only disk becomes a typed error; other errors stay unchanged. */
export async function mapWriteErrors<T>(path: string, work: () => Promise<T>): Promise<T> {
  return work().catch((thrown: unknown) => {
    throw typedError(thrown, WRITE_ERRORS, path) ?? thrown;
  });
}

/** Runs work that copies the workspace of a sandbox. */
export async function mapCaptureErrors<T>(path: string, work: () => Promise<T>): Promise<T> {
  return work().catch((thrown: unknown) => {
    throw typedError(thrown, CAPTURE_ERRORS, path) ?? thrown;
  });
}

/**
 * Runs work that reads a checkpoint and may write what it read. A missing file and a file of the wrong kind prove damage
 * to the checkpoint. Any other errno code only says that the checkpoint could not be read.
 */
export async function mapCheckpointReadErrors<T>(
  checkpointId: CheckpointId,
  path: string,
  work: () => Promise<T>,
): Promise<T> {
  return work().catch((thrown: unknown) => {
    const known = typedError(thrown, { ...WRITE_ERRORS, ...DAMAGE_BY_ERRNO }, path)?.with({ checkpointId });
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

function typedError(
  thrown: unknown,
  codes: Readonly<Record<string, ErrorCode>>,
  defaultPath: string,
): TorporError | undefined {
  const code = codes[errnoOf(thrown) ?? ''];
  if (code === undefined) return undefined;
  const path = (thrown as NodeJS.ErrnoException).path ?? defaultPath;
  return new TorporError(code, `${MESSAGES[code]}: ${path}.`, { details: { path }, cause: thrown });
}
