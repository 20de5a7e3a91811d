import pico from 'picocolors';
import { describe, expect, it } from 'vitest';
import { columns, fieldLines } from './columns.ts';
import { shellLine } from './shell-words.ts';

describe('columns', () => {
  it('line up, whatever colours the cells have, and no line ends in blanks', () => {
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

describe('facts', () => {
  it('leave out what is not known', () => {
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

describe('words for a shell', () => {
  it.each([
    [['ls | wc -l'], 'ls | wc -l'],
    [['npm', 'run', 'build'], 'npm run build'],
    [['echo', 'a b', "it's", '$HOME', ''], `echo 'a b' 'it'\\''s' '$HOME' ''`],
  ])('%j', (words, line) => {
    expect(shellLine(words)).toBe(line);
  });
});
