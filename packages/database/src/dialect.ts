/** The few words in which SQLite and PostgreSQL differ, and how a text is written for one of them. */

import type { Database } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';

export type Dialect = Database['dialect'];

const KEYWORDS: Readonly<Record<Dialect, Readonly<Record<string, string>>>> = {
  // SQLite has one writer at a time, so there is never a row to lock. STRICT takes only its own type names.
  sqlite: { 'FOR UPDATE': '', 'SKIP LOCKED': '', integer: 'INTEGER', real: 'REAL', strict: 'STRICT' },
  // PostgreSQL's INTEGER has 32 bits, too few for milliseconds.
  postgres: {
    'FOR UPDATE': 'FOR UPDATE',
    'SKIP LOCKED': 'SKIP LOCKED',
    integer: 'BIGINT',
    real: 'DOUBLE PRECISION',
    strict: '',
  },
};

/** Literals, quoted names and comments come first, so that a brace or a dollar inside one stays as it is. */
const TOKENS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\{([^{}]*)\}|\$(\d+)/g;

export interface RenderedSql {
  readonly text: string;
  /** How many parameters it takes: the highest number in it. */
  readonly parameters: number;
}

/** Fills in the words in braces; for SQLite, `$1` becomes `?1`. */
export function renderSql(dialect: Dialect, sql: string): RenderedSql {
  let parameters = 0;
  const text = sql.replace(TOKENS, (token: string, word?: string, parameter?: string) => {
    if (parameter !== undefined) {
      parameters = Math.max(parameters, Number(parameter));
      return dialect === 'sqlite' ? `?${parameter}` : token;
    }
    return word === undefined ? token : keywordOf(dialect, word);
  });
  return { text, parameters };
}

function keywordOf(dialect: Dialect, word: string): string {
  const words = KEYWORDS[dialect];
  const written = Object.hasOwn(words, word) ? words[word] : undefined;
  if (written === undefined) throw new TorporError('internal', `SQL has no word {${word}}.`);
  return written;
}
