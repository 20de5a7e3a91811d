/** Options that may be repeated, as lists or as `key=value` pairs. */
import { CliError } from './failure.ts';

export function collectValues(value: string, before: readonly string[] = []): string[] {
  return [...before, value];
}

/** Undefined when the option was not given. */
export function parsePairs(
  option: string,
  texts: readonly string[] | undefined,
): Record<string, string> | undefined {
  if (texts === undefined) return undefined;
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf('=');
      if (at < 1) throw new CliError('INVALID_ARGUMENT', `${option} needs key=value, not "${text}".`);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}
