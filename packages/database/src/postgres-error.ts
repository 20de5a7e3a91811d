/**
 * What PostgreSQL's SQLSTATEs mean to the engine. An error without one did not come from the server: the
 * connection failed.
 */

import { ConstraintViolation } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import pg from 'pg';

const SERIALIZATION_FAILURE = '40001';
const DEADLOCK_DETECTED = '40P01';
const READ_ONLY_TRANSACTION = '25006';

/** Whether the same transaction may succeed when it runs again at once. */
export function isRerunnable(error: unknown): boolean {
  const state = error instanceof Error ? sqlState(error.cause) : undefined;
  return state === SERIALIZATION_FAILURE || state === DEADLOCK_DETECTED;
}

/** Whether the connection is of no more use. */
export function isConnectionLost(thrown: unknown): boolean {
  if (thrown instanceof TorporError) return false;
  const state = sqlState(thrown);
  return state === undefined || isConnectionState(state);
}

export function isReadOnlyTransaction(thrown: unknown): boolean {
  return sqlState(thrown) === READ_ONLY_TRANSACTION;
}

/** `database` is its name for people, without the password. A fault in a statement stays what it is. */
export function postgresError(thrown: unknown, database: string): unknown {
  if (thrown instanceof TorporError) return thrown;
  if (isConnectionLost(thrown)) return unreachable(database, thrown);
  const state = sqlState(thrown);
  if (state === undefined || !(thrown instanceof Error)) return thrown;
  const kind = constraintKind(state);
  if (kind !== undefined) return new ConstraintViolation(kind, thrown.message, thrown);
  switch (state) {
    case '53100':
      return failed('storage_full', `There is no room left for ${database}.`, database, thrown);
    case READ_ONLY_TRANSACTION:
      return failed('storage_readonly', `${database} takes no writes.`, database, thrown);
    case '57014':
      return failed(
        'timeout',
        `${database} took too long over a statement, which was stopped.`,
        database,
        thrown,
      );
    case SERIALIZATION_FAILURE:
    case DEADLOCK_DETECTED:
      return failed('capacity', `${database} had too many transactions at the same rows.`, database, thrown);
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
      hint: 'Check that the server runs, and what the URL says. Nothing was concluded from this.',
      details: { database },
      cause,
    },
  );
}

/** Nobody can say whether a COMMIT whose answer was lost happened. */
export function unknownOutcome(database: string, cause: unknown): TorporError {
  return new TorporError(
    'unreachable',
    `The connection to ${database} was lost during a COMMIT: whether it happened is not known.`,
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

/** Any code of Node's, also those of TLS, which are no errnos: `ECONNREFUSED`, `SELF_SIGNED_CERT_IN_CHAIN`. */
function errorCodeOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !('code' in thrown)) return undefined;
  return typeof thrown.code === 'string' ? thrown.code : undefined;
}

/** Refused, shut down, over its number of connections, or unknown to the server. */
function isConnectionState(state: string): boolean {
  const ofClass = state.slice(0, 2);
  if (ofClass === '08' || ofClass === '28') return true;
  return ['25P03', '3D000', '53300', '57P01', '57P02', '57P03', '57P04', '57P05'].includes(state);
}

/** NOT NULL and RAISE in a trigger are checks too. */
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
  storage_full: 'Make room on the disk of the database server. Nothing was changed.',
  storage_readonly: 'Point Torpor at the primary, or let its user write. Nothing was changed.',
  timeout: 'Look at what the database server is busy with, then try again. Nothing was changed.',
  capacity: 'Try again. Nothing was changed.',
  internal: 'Look into the log of the database server, and restore from a backup where it says so.',
} as const;
