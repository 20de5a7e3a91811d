/** Compares docs/requirements.md with the requirements that the tests of `npm test` cite. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { citationsOf } from './citations.ts';

interface Requirement {
  readonly number: number;
  readonly state: string;
  /** Test files that cite it, relative to the root. */
  readonly tests: readonly string[];
}

interface Coverage {
  readonly requirements: readonly Requirement[];
  /** One sentence for each disagreement between the document and the tests. */
  readonly faults: readonly string[];
}

const ROW = /^\| R(\d+) \| .+ \| ([^|]+) \|$/gm;

/** Campaigns are not read, because `npm test` must check every requirement that holds. */
const TESTS = [
  ...['packages', 'tests', 'scripts', 'examples'].map((folder) => `${folder}/**/*.test.ts`),
  // Contract suites, which every implementation of a port runs.
  'packages/*/testing/*-contract.ts',
];
const NOT_READ = ['**/node_modules/**', '**/*.campaign.test.ts', 'scripts/requirements/**'];

export function readCoverage(root: string): Coverage {
  const rows = [...readFileSync(join(root, 'docs/requirements.md'), 'utf8').matchAll(ROW)];
  const cited = readCitations(root);
  const requirements = rows.map(([, number, state = '']) => ({
    number: Number(number),
    state,
    tests: cited.get(Number(number)) ?? [],
  }));
  return { requirements, faults: findFaults(requirements, cited) };
}

function readCitations(root: string): Map<number, string[]> {
  const cited = new Map<number, string[]>();
  for (const file of globSync(TESTS, { cwd: root, exclude: NOT_READ }).sort()) {
    for (const number of citationsOf(file, readFileSync(join(root, file), 'utf8'))) {
      cited.set(number, [...(cited.get(number) ?? []), file]);
    }
  }
  return cited;
}

function findFaults(requirements: readonly Requirement[], cited: ReadonlyMap<number, string[]>): string[] {
  const faults: string[] = [];
  for (const [index, { number, state, tests }] of requirements.entries()) {
    if (number !== index + 1) faults.push(`R${number} stands where R${index + 1} is expected.`);
    if (state !== 'holds' && !state.startsWith('open: ')) {
      faults.push(`R${number} has the state "${state}"; use "holds" or "open: what it waits for".`);
    }
    if (state === 'holds' && tests.length === 0) faults.push(`R${number} holds, and no test cites it.`);
  }
  const known = new Set(requirements.map(({ number }) => number));
  for (const [number, files] of cited) {
    if (!known.has(number))
      faults.push(`R${number} is cited by ${files.join(', ')} and is not in the document.`);
  }
  return faults;
}
