import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { citationsOf } from './citations.ts';
import { readCoverage } from './coverage.ts';

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'torpor-requirements-'));
});

afterEach(() => rmSync(root, { recursive: true }));

function write(file: string, text: string): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), text);
}

function writeDocument(...rows: string[]): void {
  write('docs/requirements.md', ['| R | requirement | state |', '|---|---|---|', ...rows, ''].join('\n'));
}

describe('the requirements of this project', () => {
  it('each have a test when they hold, and tests cite no unknown ones', () => {
    const { requirements, faults } = readCoverage(join(import.meta.dirname, '../..'));

    expect(faults).toEqual([]);
    expect(requirements).toHaveLength(115);
  });
});

describe('a citation', () => {
  it('is a number, a list or a range in the title of a test', () => {
    const text = "it('a (R1)'); it(`b (R3, R5-R7)`); it.each([])('c (R9)'); // (R20)";

    expect([...citationsOf('a.test.ts', text)]).toEqual([1, 3, 5, 6, 7, 9]);
  });
});

describe('coverage', () => {
  it('names a requirement that holds without a test', () => {
    writeDocument('| R1 | one | holds |', '| R2 | two | holds |', '| R3 | three | open: later |');
    write('packages/a/src/a.test.ts', "it('does one (R1)')");

    expect(readCoverage(root).faults).toEqual(['R2 holds, and no test cites it.']);
  });

  it('ignores campaigns, which npm test does not run', () => {
    writeDocument('| R1 | one | holds |');
    write('tests/a.campaign.test.ts', "it('does one (R1)')");

    expect(readCoverage(root).faults).toEqual(['R1 holds, and no test cites it.']);
  });

  it('names unknown numbers, gaps and unknown states', () => {
    writeDocument('| R1 | one | perhaps |', '| R3 | three | open: later |');
    write('tests/a.test.ts', "it('does two (R2)')");

    expect(readCoverage(root).faults).toEqual([
      'R1 has the state "perhaps"; use "holds" or "open: what it waits for".',
      'R3 stands where R2 is expected.',
      'R2 is cited by tests/a.test.ts and is not in the document.',
    ]);
  });
});
