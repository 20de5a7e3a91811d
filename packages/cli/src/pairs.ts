/** Options that may be given several times, as lists or as `key=value`. */
import { CliError } from './failure.ts';

export function collect(value: string, before: readonly string[] = []): string[] {
  return [...before, value];
}

/** Undefined when there were none. */
export function pairsOf(
  option: string,
  texts: readonly string[] | undefined,
): Record<string, string> | undefined {
  if (texts === undefined) return undefined;
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf('=');
      if (at < 1) throw new CliError('INVALID_ARGUMENT', `${option} wants key=value, not "${text}".`);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

/** What was given, without the fields that were not: the server refuses none, but needs none. */
export function given<T extends Record<string, unknown>>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };
}
