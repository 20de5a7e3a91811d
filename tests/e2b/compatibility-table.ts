/**
 * The table in docs/coming-from-e2b.md of the packages that were run and what passed. `npm run test:e2b` sets
 * TORPOR_E2B_TABLE and so writes the rows of what it runs. Other runs leave the table as it is.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const PAGE = join(import.meta.dirname, '../../docs/coming-from-e2b.md');
const BEGIN = '<!-- The rows up to the end mark are written by npm run test:e2b. -->';
const END = '<!-- End of the rows. -->';

export interface PackageRow {
  /** `e2b` for JavaScript. */
  readonly name: string;
  readonly version: string;
  readonly over: 'http' | 'TLS';
  /** Chapters of the program, or titles of tests. */
  readonly passed: readonly string[];
}

export function recordPassed(row: PackageRow): void {
  if (process.env['TORPOR_E2B_TABLE'] === undefined) return;
  writeFileSync(PAGE, withRow(readFileSync(PAGE, 'utf8'), row));
}

/** Replaces the row of the same package, version and way, or adds one. Rows of other versions go. */
export function withRow(page: string, { name, version, over, passed }: PackageRow): string {
  const [before = '', rest] = page.split(`${BEGIN}\n`);
  const [table = '', after] = rest?.split(END) ?? [];
  if (rest === undefined || after === undefined) throw new Error('The page has no marks for the table.');
  const [head = '', line = '', ...rows] = table.trim().split('\n');
  const start = `| ${name} | `;
  const isReplaced = (one: string) =>
    one.startsWith(start) && (one.includes(`| ${over} |`) || !one.includes(version));
  const kept = rows.filter((one) => !isReplaced(one));
  const all = [...kept, `${start}${version} | ${over} | ${passed.join(', ')} |`].toSorted();
  return `${before}${BEGIN}\n\n${[head, line, ...all].join('\n')}\n\n${END}${after}`;
}
