/** Finds the command name in a command line. The command itself parses the rest. */

export interface CommandLine {
  /** Undefined when no command was named. */
  readonly name: string | undefined;
  readonly rest: readonly string[];
}

/** Options with a value that may come before the command name. */
const WITH_VALUE: ReadonlySet<string> = new Set(['--url', '--api-key', '--data-dir', '--org-id']);

/** `torpor sandbox X` is `torpor X`. Options before the name count as options of the command. */
export function readCommandLine(argv: readonly string[]): CommandLine {
  const before: string[] = [];
  let left = [...argv];
  while (left[0]?.startsWith('-')) {
    const taken = WITH_VALUE.has(left[0]) ? 2 : 1;
    before.push(...left.slice(0, taken));
    left = left.slice(taken);
  }
  if (left[0] === 'sandbox' || left[0] === 'sandboxes') left = left.slice(1);
  const [name, ...after] = left;
  return { name, rest: [...before, ...after] };
}

/**
 * Inserts `--` before the first word of a program to run, so that `torpor exec web ls -l` passes `-l` to `ls`.
 * Options of the CLI may come anywhere before that word.
 */
export function guardCommand(
  rest: readonly string[],
  takesValue: (option: string) => boolean,
  wordsBefore: number,
): string[] {
  let words = 0;
  for (let i = 0; i < rest.length; i++) {
    const token = rest[i] ?? '';
    if (token === '--') {
      // Everything before this `--` belongs to the CLI. A `--` after the first word of the program is the program's.
      return [...rest];
    }
    if (token.startsWith('-') && token !== '-') {
      if (takesValue(token)) i++;
      continue;
    }
    if (words++ === wordsBefore) return [...rest.slice(0, i), '--', ...rest.slice(i)];
  }
  return [...rest];
}

/** The names that are similar to a misspelt one. */
export function similar(name: string, names: readonly string[]): string[] {
  const near = names.map((other) => ({ other, far: distance(name, other) })).filter(({ far }) => far <= 2);
  return near
    .sort((a, b) => a.far - b.far)
    .map(({ other }) => other)
    .slice(0, 3);
}

/** The edit distance: letters that have to be changed, added, removed or swapped. */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const above = rows[i - 1]?.[j] ?? 0;
      const left = row[j - 1] ?? 0;
      const corner = rows[i - 1]?.[j - 1] ?? 0;
      let best = Math.min(above + 1, left + 1, corner + (a[i - 1] === b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        best = Math.min(best, (rows[i - 2]?.[j - 2] ?? 0) + 1);
      }
      row.push(best);
    }
    rows.push(row);
  }
  return rows[a.length]?.[b.length] ?? 0;
}
