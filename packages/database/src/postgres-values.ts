/** Converts PostgreSQL's values into those of the port, which are the same as SQLite's. */
import { TorporError } from '@torpor/protocol';

const BOOL = 16;
const INT8 = 20;
const INT2 = 21;
const INT4 = 23;
const FLOAT4 = 700;
const FLOAT8 = 701;
/** The type of sum() over integers. */
const NUMERIC = 1700;

const PARSERS: Readonly<Record<number, (text: string) => string | number>> = {
  [BOOL]: (text) => (text === 't' ? 1 : 0),
  [INT2]: Number,
  [INT4]: Number,
  [INT8]: exact,
  [FLOAT4]: Number,
  [FLOAT8]: Number,
  [NUMERIC]: exact,
};

/** For pg's `types`. Passed to each connection, because pg's own table is shared by the whole process. */
export const postgresValues = {
  getTypeParser: (oid: number) => PARSERS[oid] ?? String,
};

function exact(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    throw new TorporError('internal', `${text} is too large for a number.`);
  }
  return value;
}
