/** Errors as the database keeps them: the output of `TorporError.toBody`. */
import { type ErrorBody, errorBodySchema, TorporError } from '@torpor/protocol';
import { z } from 'zod';

/** The code may be of a newer version; `fromBody` makes it `internal`. */
const storedErrorSchema = errorBodySchema.extend({ code: z.string() });

function isErrorBody(value: unknown): value is ErrorBody {
  return storedErrorSchema.safeParse(value).success;
}

/** Reads a nullable column. */
export function parseStoredError(text: string | null): ErrorBody | null {
  if (text === null) return null;
  const stored: unknown = JSON.parse(text);
  if (!isErrorBody(stored)) throw new TorporError('internal', 'An error in the database cannot be read.');
  return TorporError.fromBody(stored).toBody();
}
