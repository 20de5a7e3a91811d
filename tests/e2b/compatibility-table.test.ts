import { describe, expect, it } from 'vitest';
import { withRow } from './compatibility-table.ts';

const PAGE = `before
<!-- The rows up to the end mark are written by npm run test:e2b. -->

| package | version | over | passed |
|---|---|---|---|
| a | 1.0 | TLS | one |
| a | 1.0 | http | one |
| b | 1.0 | http | one |

<!-- End of the rows. -->
after`;

const rowsOf = (page: string) => page.split('\n').filter((line) => /^\| [ab] /.test(line));

describe('the table of packages', () => {
  it('has the newest row of each package and way, in order, and leaves the rest of the page', () => {
    const page = withRow(PAGE, { name: 'a', version: '1.0', over: 'http', passed: ['one', 'two'] });
    expect(rowsOf(page)).toEqual([
      '| a | 1.0 | TLS | one |',
      '| a | 1.0 | http | one, two |',
      '| b | 1.0 | http | one |',
    ]);
    expect(page).toMatch(/^before\n[\s\S]*\nafter$/);
    expect(withRow(page, { name: 'a', version: '1.0', over: 'http', passed: ['one', 'two'] })).toBe(page);
  });

  it('has no rows of an earlier version of a package', () => {
    const page = withRow(PAGE, { name: 'a', version: '2.0', over: 'http', passed: ['one'] });
    expect(rowsOf(page)).toEqual(['| a | 2.0 | http | one |', '| b | 1.0 | http | one |']);
  });
});
