/** What the texts of a form mean. A text that is empty means that nothing was given. */

export function textIn(text: string): string | undefined {
  return text.trim() || undefined;
}

export function numberIn(text: string): number | undefined {
  return text.trim() === '' ? undefined : Number(text);
}

/** Words that are separated by spaces, commas or lines. */
export function wordsIn(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** One `NAME=value` per line. Throws for a line that is no variable. */
export function variablesIn(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf('=');
      if (at < 1) throw new Error(`"${line.trim()}" is not NAME=value.`);
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}

/** Without the fields that were not given, so that the server's own defaults apply. */
export function given<T extends object>(values: T): Partial<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** As `given`; undefined when no field was given. */
export function anyGiven<T extends object>(values: T): Partial<T> | undefined {
  const found = given(values);
  return Object.keys(found).length === 0 ? undefined : found;
}
