/** Aligned columns of plain text. */
import { stripVTControlCharacters } from 'node:util';
import type { Colors } from './colors.ts';

const GAP = '  ';

/** The last column is not padded, so that no line ends with spaces. */
export function columns(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  colors: Colors,
): string {
  const lines = [header.map((title) => (title === '' ? '' : colors.dim(title))), ...rows];
  const widths = header.map((_, i) => Math.max(...lines.map((line) => widthOf(line[i] ?? ''))));
  return lines
    .map((line) =>
      line
        .map((cell, i) => pad(cell, i === line.length - 1 ? 0 : (widths[i] ?? 0)))
        .join(GAP)
        .trimEnd(),
    )
    .join('\n');
}

/** One line per field; fields without a value are left out. */
export function fieldLines(
  pairs: readonly (readonly [name: string, value: string | null | undefined])[],
  colors: Colors,
): string {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== '');
  const width = Math.max(...known.map(([name]) => name.length));
  return known.map(([name, value]) => `${colors.dim(name.padEnd(width))}${GAP}${value}`).join('\n');
}

function pad(cell: string, width: number): string {
  return cell + ' '.repeat(Math.max(0, width - widthOf(cell)));
}

function widthOf(cell: string): number {
  return [...stripVTControlCharacters(cell)].length;
}
