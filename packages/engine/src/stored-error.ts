/** Errors as the database keeps them: the output of `TorporError.toBody`. */
import { type ErrorBody, isErrorBody, TorporError } from '@torpor/protocol';

/** Reads a nullable column. */
export function parseStoredError(text: string | null): ErrorBody | null {
  if (text === null) return null;
  const stored: unknown = JSON.parse(text);
  if (!isErrorBody(stored)) throw new TorporError('internal', 'An error in the database cannot be read.');
  return TorporError.fromBody(stored).toBody();
}
