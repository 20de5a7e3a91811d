/**
 * PostgreSQL would spend more than half of its time in these histories on parsing and planning the same statements again.
 * A statement with a name is parsed once per connection, and its plan is kept.
 */
import pg from 'pg';

type Query = (this: pg.Client, query: unknown, ...rest: unknown[]) => unknown;

/** Gives every statement with parameters a name, in the whole process. Returns a function that ends this. */
export function prepareStatements(): () => void {
  const names = new Map<string, string>();
  const nameOf = (text: string) => {
    const name = names.get(text) ?? `statement-${names.size}`;
    names.set(text, name);
    return name;
  };
  const prototype = pg.Client.prototype as unknown as { query: Query };
  const { query: original } = prototype;
  prototype.query = function (query, ...rest) {
    const named = isParameterised(query) ? { ...query, name: nameOf(query.text) } : query;
    return original.call(this, named, ...rest);
  };
  return () => {
    prototype.query = original;
  };
}

function isParameterised(query: unknown): query is { text: string; values: unknown[] } {
  return typeof query === 'object' && query !== null && 'text' in query && 'values' in query;
}
