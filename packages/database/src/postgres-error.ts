/**
 * Converts PostgreSQL's SQLSTATEs into errors of the engine. An error without a SQLSTATE did not come from the server: the
 * connection failed.
 */

import { ConstraintViolation } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import pg from 'pg';

const SERIALIZATION_FAILURE = '40001';
const DEADLOCK_DETECTED = '40P01';
const READ_ONLY_TRANSACTION = '25006';

/** Whether the transaction may succeed when it runs again at once. */
export function isRerunnable(error: unknown): boolean {
  const state = error instanceof Error ? sqlState(error.cause) : undefined;
  return state === SERIALIZATION_FAILURE || state === DEADLOCK_DETECTED;
}

/** Whether the connection cannot be used any more. */
export function isConnectionLost(thrown: unknown): boolean {
  if (thrown instanceof TorporError) return false;
  const state = sqlState(thrown);
  return state === undefined || isConnectionState(state);
}

export function isReadOnlyTransaction(thrown: unknown): boolean {
  return sqlState(thrown) === READ_ONLY_TRANSACTION;
}

/** `database` is a name for people, without the password. An error in the statement itself is returned as it is. */
export function postgresError(thrown: unknown, database: string): unknown {
  if (thrown instanceof TorporError) return thrown;
  if (isConnectionLost(thrown)) return unreachable(database, thrown);
  const state = sqlState(thrown);
  if (state === undefined || !(thrown instanceof Error)) return thrown;
  const kind = constraintKind(state);
  if (kind !== undefined) return new ConstraintViolation(kind, thrown.message, thrown);
  switch (state) {
    case '53100':
      return failed('storage_full', `There is no space left for ${database}.`, database, thrown);
    case READ_ONLY_TRANSACTION:
      return failed('storage_readonly', `${database} is read-only.`, database, thrown);
    case '57014':
      return failed(
        'timeout',
        `${database} took too long over a statement, which was stopped.`,
        database,
        thrown,
      );
    case SERIALIZATION_FAILURE:
    case DEADLOCK_DETECTED:
      return failed(
        'capacity',
        `${database} had too many concurrent transactions on the same rows.`,
        database,
        thrown,
      );
    case 'XX001':
    case 'XX002':
      return failed('internal', `${database} reports that its data is damaged.`, database, thrown);
    default:
      return thrown;
  }
}

export function unreachable(database: string, cause: unknown): TorporError {
  const why = sqlState(cause) ?? errorCodeOf(cause);
  return new TorporError(
    'unreachable',
    `${database} cannot be reached${why === undefined ? '' : ` (${why})`}.`,
    {
      hint: 'Check that the server runs, and that the URL is right.',
      details: { database },
      cause,
    },
  );
}

/** When the answer to a COMMIT is lost, it is unknown whether the transaction was committed. */
export function unknownOutcome(database: string, cause: unknown): TorporError {
  return new TorporError(
    'unreachable',
    `The connection to ${database} was lost during a COMMIT: whether the transaction was committed is not known.`,
    {
      hint: 'Read again what the transaction would have changed before repeating it.',
      details: { database, outcome: 'unknown' },
      cause,
    },
  );
}

function sqlState(thrown: unknown): string | undefined {
  return thrown instanceof pg.DatabaseError ? thrown.code : undefined;
}

/** Any error code of Node, also those of TLS, which are not errnos: `ECONNREFUSED`, `SELF_SIGNED_CERT_IN_CHAIN`. */
function errorCodeOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !('code' in thrown)) return undefined;
  return typeof thrown.code === 'string' ? thrown.code : undefined;
}

/** The server refused the connection, is shutting down, has too many connections, or does not know the database. */
function isConnectionState(state: string): boolean {
  const ofClass = state.slice(0, 2);
  if (ofClass === '08' || ofClass === '28') return true;
  return ['25P03', '3D000', '53300', '57P01', '57P02', '57P03', '57P04', '57P05'].includes(state);
}

/** NOT NULL and RAISE in a trigger count as checks too. */
function constraintKind(state: string): ConstraintViolation['kind'] | undefined {
  if (state === '23505' || state === '23P01') return 'unique';
  if (state === '23503' || state === '23001') return 'foreign_key';
  if (state.startsWith('23') || state === 'P0001') return 'check';
  return undefined;
}

function failed(
  code: 'storage_full' | 'storage_readonly' | 'timeout' | 'capacity' | 'internal',
  message: string,
  database: string,
  cause: unknown,
): TorporError {
  return new TorporError(code, message, { hint: HINTS[code], details: { database }, cause });
}

const HINTS = {
  storage_full: 'Free space on the disk of the database server. Nothing was changed.',
  storage_readonly: 'Use the URL of the primary, or give the user the right to write. Nothing was changed.',
  timeout: 'Check what the database server is busy with, then try again. Nothing was changed.',
  capacity: 'Try again. Nothing was changed.',
  internal: 'Read the log of the database server, and restore a backup if it reports damage.',
} as const;
