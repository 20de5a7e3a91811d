/** The keywords in which SQLite and PostgreSQL differ, and how SQL is rendered for one of them. */

import type { Database } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export type Dialect = Database['dialect'];

const KEYWORDS: Readonly<Record<Dialect, Readonly<Record<string, string>>>> = {
  // SQLite has one writer at a time, so rows are never locked. STRICT tables accept only SQLite's own type names.
  sqlite: {
    'FOR UPDATE': '',
    'SKIP LOCKED': '',
    integer: 'INTEGER',
    real: 'REAL',
    strict: 'STRICT',
    now: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
  },
  // PostgreSQL's INTEGER has 32 bits, too few for times in milliseconds.
  postgres: {
    'FOR UPDATE': 'FOR UPDATE',
    'SKIP LOCKED': 'SKIP LOCKED',
    integer: 'BIGINT',
    real: 'DOUBLE PRECISION',
    strict: '',
    // Of the moment, not of the beginning of the transaction.
    now: 'CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)',
  },
};

/** Literals, quoted names and comments match first, so that braces and dollars in them stay as they are. */
const TOKENS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\{([^{}]*)\}|\$(\d+)/g;

export interface RenderedSql {
  readonly text: string;
  /** The number of parameters: the highest number in the text. */
  readonly parameters: number;
}

/** Replaces the keywords in braces; for SQLite, `$1` becomes `?1`. */
export function renderSql(dialect: Dialect, sql: string): RenderedSql {
  let parameters = 0;
  const text = sql.replace(TOKENS, (token: string, keyword?: string, parameter?: string) => {
    if (parameter !== undefined) {
      parameters = Math.max(parameters, Number(parameter));
      return dialect === 'sqlite' ? `?${parameter}` : token;
    }
    return keyword === undefined ? token : keywordOf(dialect, keyword);
  });
  return { text, parameters };
}

function keywordOf(dialect: Dialect, keyword: string): string {
  const keywords = KEYWORDS[dialect];
  const rendered = Object.hasOwn(keywords, keyword) ? keywords[keyword] : undefined;
  if (rendered === undefined) throw new TorporError('internal', `There is no SQL keyword {${keyword}}.`);
  return rendered;
}
