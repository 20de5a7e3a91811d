/** What SQLite's result codes mean to the engine. The low byte is the kind, the whole number the detail. */

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
/** The index of the log could not grow. It lies beside the file, and nothing but room makes it fail. */
const IOERR_SHMSIZE = 4874;

/** Whether a connection that may only read was asked to write. A disk that cannot be written says more. */
export function isWriteRefused(thrown: unknown): boolean {
  return resultCode(thrown) === READONLY;
}

/** Whether a write to the file found no room. A refusal that somebody decided on has no cause. */
export function isDiskFull(thrown: unknown): boolean {
  return thrown instanceof TorporError && thrown.code === 'storage_full' && thrown.cause !== undefined;
}

/** What was thrown while working on the file at `path`. A fault in a statement stays what it is. */
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
        hint: 'Look into the kernel log for errors of this disk. Nothing was changed.',
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

/** NOT NULL, types of STRICT tables and RAISE in a trigger are checks too. */
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
    hint: 'Stop Torpor and copy the file. Then put back a backup, or try "sqlite3 <file> .recover".',
    details: { path },
    cause,
  });
}
