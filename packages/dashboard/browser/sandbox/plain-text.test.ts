import { describe, expect, it } from 'vitest';
import { plainText } from './plain-text.ts';

describe('a line of a log', () => {
  it('keeps its text, tabs and line breaks', () => {
    expect(plainText('a\tb\r\nc\n')).toBe('a\tb\nc\n');
  });

  it('loses colours, cursor movements and titles', () => {
    expect(plainText('\x1b[31mred\x1b[0m \x1b[2K\x1b[1Aup \x1b]0;title\x07end')).toBe('red up end');
    expect(plainText('\x1b]52;c;ZXZpbA==\x1b\\x')).toBe('x');
  });

  it('cannot reorder or hide text', () => {
    expect(plainText('safe\u202etxt.exe\x08\x08')).toBe('safetxt.exe');
    expect(plainText('<script>alert(1)</script>')).toBe('<script>alert(1)</script>');
  });
});
