import { describe, expect, it } from 'vitest';
import { parseRange } from './byte-range.ts';

describe('a range of bytes', () => {
  it.each([
    ['bytes=0-4', { start: 0, end: 4 }],
    ['bytes=5-', { start: 5, end: 9 }],
    ['bytes=-3', { start: 7, end: 9 }],
    ['bytes=8-100', { start: 8, end: 9 }],
    ['bytes=-100', { start: 0, end: 9 }],
  ])('%s selects its part of ten bytes', (header, expected) => {
    expect(parseRange(header, 10)).toEqual(expected);
  });

  it.each([undefined, '', 'bytes=', 'bytes=-', 'bytes=4-2', 'bytes=0-1,3-4', 'lines=1-2'])(
    '%s means the whole file',
    (header) => {
      expect(parseRange(header, 10)).toBeUndefined();
    },
  );

  it.each(['bytes=10-', 'bytes=10-20', 'bytes=-0'])('%s is outside the file', (header) => {
    expect(parseRange(header, 10)).toBe('unsatisfiable');
  });
});
