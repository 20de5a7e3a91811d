import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const page = readFileSync('docs/architecture.md', 'utf8');
const path = page.slice(page.indexOf('## The path of a pause'), page.indexOf('## The path of a resume'));

/** The rows of the table with a number: a file, and the file that calls it. */
const hops = [...path.matchAll(/^\| (\d+) \| `([^`]+)` \| `([^`]+)` \|/gm)].map(
  ([, number, file, caller]) => ({
    number: Number(number),
    file: String(file),
    caller: String(caller),
  }),
);

describe('the path of a pause in docs/architecture.md', () => {
  it('has as many hops and files as the page says, and at most 42', () => {
    const said = /has (\d+) hops through (\d+) files/.exec(path);
    const names = new Set(hops.flatMap(({ file, caller }) => [nameOf(file), nameOf(caller)]));
    expect(hops.map(({ number }) => number)).toEqual(hops.map((_, index) => index + 1));
    expect([Number(said?.[1]), Number(said?.[2])]).toEqual([hops.length, names.size]);
    expect(hops.length).toBeLessThanOrEqual(42);
  });

  it('names files that exist, and callers that come before them', () => {
    const seen = new Set(['lifecycle.ts']);
    for (const { file, caller } of hops) {
      expect(globSync(`packages/{,*/src/**/}${file}`), file).not.toEqual([]);
      expect(seen, `${caller} calls ${file}`).toContain(nameOf(caller));
      seen.add(nameOf(file));
    }
  });
});

function nameOf(file: string): string {
  return file.slice(file.lastIndexOf('/') + 1);
}
