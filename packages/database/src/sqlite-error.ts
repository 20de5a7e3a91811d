/** Converts SQLite's result codes into errors of the engine. The low byte is the kind, the whole number the detail. */

import { ConstraintViolation } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { storageFull, storageReadonly } from './file-error.ts';

const PERM = 3;
const BUSY = 5;
const READONLY = 8;
const IOERR = 10;
const CORRUPT = 11;
const FULL = 13;
const CANTOPEN = 14;
const CONSTRAINT = 19;
const MISMATCH = 20;
const NOTADB = 26;

const CONSTRAINT_FOREIGNKEY = 787;
const CONSTRAINT_PRIMARYKEY = 1555;
const CONSTRAINT_UNIQUE = 2067;
const CONSTRAINT_ROWID = 2579;
/** The index of the write-ahead log could not grow. It is beside the file, and fails only when the disk is full. */
const IOERR_SHMSIZE = 4874;

/** Whether a read-only connection was asked to write. A read-only disk has a more specific code. */
export function isWriteRefused(thrown: unknown): boolean {
  return resultCode(thrown) === READONLY;
}

/** Whether a write to the file found the disk full. A refusal by the engine has no cause. */
export function isDiskFull(thrown: unknown): boolean {
  return thrown instanceof TorporError && thrown.code === 'storage_full' && thrown.cause !== undefined;
}

/** Converts what was thrown while working on the file at `path`. An error in the statement itself is returned as it is. */
export function sqliteError(thrown: unknown, path: string): unknown {
  const code = resultCode(thrown);
  if (code === undefined || !(thrown instanceof Error)) return thrown;
  if (code === IOERR_SHMSIZE) return storageFull(path, thrown);
  switch (code & 0xff) {
    case CONSTRAINT:
    case MISMATCH:
      return new ConstraintViolation(constraintKind(code), thrown.message, thrown);
    case FULL:
      return storageFull(path, thrown);
    case READONLY:
    case CANTOPEN:
    case PERM:
      return storageReadonly(path, thrown);
    case BUSY:
      return busy(path, thrown);
    case CORRUPT:
    case NOTADB:
      return damaged(path, thrown);
    case IOERR:
      return new TorporError('internal', `The disk reported an error (${code}) at ${path}.`, {
        hint: 'Read the kernel log for errors of this disk. Nothing was changed.',
        details: { path },
        cause: thrown,
      });
    default:
      return thrown;
  }
}

function resultCode(thrown: unknown): number | undefined {
  if (!(thrown instanceof Error) || !('errcode' in thrown)) return undefined;
  return typeof thrown.errcode === 'number' ? thrown.errcode : undefined;
}

/** NOT NULL, types of STRICT tables and RAISE in a trigger count as checks too. */
function constraintKind(code: number): ConstraintViolation['kind'] {
  switch (code) {
    case CONSTRAINT_UNIQUE:
    case CONSTRAINT_PRIMARYKEY:
    case CONSTRAINT_ROWID:
      return 'unique';
    case CONSTRAINT_FOREIGNKEY:
      return 'foreign_key';
    default:
      return 'check';
  }
}

function busy(path: string, cause: unknown): TorporError {
  return new TorporError('in_use', `Another program holds ${path} locked.`, {
    hint: 'Close the program that has the database file open, then try again. Nothing was changed.',
    details: { path },
    cause,
  });
}

function damaged(path: string, cause: unknown): TorporError {
  return new TorporError('internal', `${path} is damaged, or is not a database of Torpor.`, {
    hint: 'Stop Torpor and copy the file. Then restore a backup, or try "sqlite3 <file> .recover".',
    details: { path },
    cause,
  });
}
