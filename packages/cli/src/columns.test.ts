import pico from 'picocolors';
import { describe, expect, it } from 'vitest';
import { columns, fieldLines } from './columns.ts';
import { shellLine } from './shell-words.ts';

describe('columns', () => {
  it('are aligned with any colours, and no line ends with spaces', () => {
    const colors = pico.createColors(true);
    const text = columns(
      ['ID', 'STATE', ''],
      [
        ['a', colors.green('running'), 'x'],
        ['bbbb', 'lost', ''],
      ],
      colors,
    );
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours are control characters.
    expect(text.replaceAll(/\u001b\[\d+m/g, '').split('\n')).toEqual([
      'ID    STATE',
      'a     running  x',
      'bbbb  lost',
    ]);
  });
});

describe('field lines', () => {
  it('leave out fields without a value', () => {
    const plain = pico.createColors(false);
    expect(
      fieldLines(
        [
          ['id', 'a'],
          ['name', null],
          ['reason', 'tired'],
        ],
        plain,
      ),
    ).toBe('id      a\nreason  tired');
  });
});

describe('a shell line', () => {
  it.each([
    [['ls | wc -l'], 'ls | wc -l'],
    [['npm', 'run', 'build'], 'npm run build'],
    [['echo', 'a b', "it's", '$HOME', ''], `echo 'a b' 'it'\\''s' '$HOME' ''`],
  ])('%j', (words, line) => {
    expect(shellLine(words)).toBe(line);
  });
});
