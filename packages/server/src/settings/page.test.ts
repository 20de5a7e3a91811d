import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CATALOGUE, GROUPS, ORDER } from './catalogue.ts';

const PAGE = join(import.meta.dirname, '../../../../docs/settings.md');
const UNITS = { ms: 'ms', s: 's', bytes: 'bytes', count: '' } as const;

function settingsPage(): string {
  const tables = GROUPS.map((group) => {
    const rows = CATALOGUE.filter((one) => one.group === group).map(
      ({ name, variable, unit, default: usual, min, max, meaning }) =>
        `| \`${name}\` | \`${variable}\` | ${`${usual} ${UNITS[unit]}`.trim()} | ${min} to ${max} | ${meaning} |`,
    );
    const rules = ORDER.filter(({ low }) => low.startsWith(`${group}.`)).map(
      ({ low, is, high }) => `\`${low}\` ${is === '<' ? '<' : '≤'} \`${high}\``,
    );
    const must = rules.length === 0 ? '' : `\nConstraints: ${rules.join(', ')}.\n`;
    return `## ${group}\n\n| setting | variable | default | range | meaning |\n|---|---|---|---|---|\n${rows.join('\n')}\n${must}`;
  });
  return `# Settings

Delays, limits and budgets that an operator can change. How to set them: [operations.md](operations.md#settings).

This page is generated from the code: \`vitest run packages/server/src/settings/page.test.ts -u\`.

${tables.join('\n')}`;
}

describe('docs/settings.md', () => {
  it('lists every setting as the code has it (R113)', async () => {
    await expect(settingsPage()).toMatchFileSnapshot(PAGE);
  });
});
