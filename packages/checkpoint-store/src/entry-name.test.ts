import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { nameToText } from './entry-name.ts';

describe('the text of a file name', () => {
  it.each(['plain', 'ünï', '日本', '😀', '\ufeffmark', ' ', 'a\nb'])('is the name itself: %j', (name) => {
    expect(nameToText(Buffer.from(name))).toBe(name);
  });

  it('has a lone surrogate for each byte that is not UTF-8', () => {
    expect(nameToText(Buffer.from([0x61, 0xff, 0xc3, 0xa9, 0xc3]))).toBe('a\udcffé\udcc3');
    // A surrogate that was encoded as if it were a character.
    expect(nameToText(Buffer.from([0xed, 0xb3, 0xbf]))).toBe('\udced\udcb3\udcbf');
  });

  it('differs for different names, also after JSON', () => {
    const names = fc.uint8Array({ minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(names, (bytes) => {
        const text = nameToText(Buffer.from(bytes));
        expect(bytesOf(JSON.parse(JSON.stringify(text)))).toEqual([...bytes]);
      }),
    );
  });
});

function bytesOf(text: string): number[] {
  return [...text].flatMap((character) => {
    const point = character.codePointAt(0) ?? 0;
    return point >= 0xdc80 && point <= 0xdcff ? [point - 0xdc00] : [...Buffer.from(character)];
  });
}
