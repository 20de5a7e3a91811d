import { describe, expect, it } from 'vitest';
import { crumbsOf, joined, parentOf, shownName, textOf } from './file-paths.ts';

describe('paths of a sandbox', () => {
  it('are joined and split without losing the root', () => {
    expect([joined('/', 'a'), joined('/a', 'b')]).toEqual(['/a', '/a/b']);
    expect([parentOf('/a/b'), parentOf('/a'), parentOf('/')]).toEqual(['/a', '/', '/']);
    expect(crumbsOf('/a/b').map(({ path }) => path)).toEqual(['/', '/a', '/a/b']);
  });

  it('show a hostile name as codes, not as what it pretends to be', () => {
    expect(shownName('a\u202egpj.exe\n')).toBe('a\\u{202e}gpj.exe\\u{a}');
    expect(shownName('<img src=x>')).toBe('<img src=x>');
  });

  it('tell text from other bytes', () => {
    expect(textOf(new TextEncoder().encode('grüße'))).toBe('grüße');
    expect(textOf(Uint8Array.of(0x50, 0, 0x51))).toBeUndefined();
    expect(textOf(Uint8Array.of(0xff, 0xfe))).toBeUndefined();
  });
});
