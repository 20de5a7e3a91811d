import { describe, expect, it } from 'vitest';
import { bytes, elapsed, parseSpan, relative } from './human-units.ts';

describe('durations', () => {
  it.each([
    ['90', 90],
    ['90s', 90],
    ['5m', 300],
    ['2h', 7_200],
    ['1d', 86_400],
    ['7D', 604_800],
  ])('%s is %i seconds', (text, seconds) => {
    expect(parseSpan(text)).toBe(seconds);
  });

  it.each(['', 'm', '5w', '1.5h', '-3s'])('%j is refused', (text) => {
    expect(() => parseSpan(text)).toThrow(expect.objectContaining({ exitCode: 10 }));
  });
});

describe('times', () => {
  const now = 1_000_000_000;
  it.each([
    [null, '-'],
    [now, 'now'],
    [now - 59_000, '59s ago'],
    [now - 61_000, '1m ago'],
    [now - 90_000_000, '1d ago'],
    [now + 7_199_400, 'in 2h'],
    [now + 60_000, 'in 1m'],
  ])('%s is %s', (at, text) => {
    expect(relative(at, now)).toBe(text);
  });
});

describe('sizes and durations', () => {
  it('have a fitting unit', () => {
    expect([0, 999, 1_000, 3_010_560, 65e9].map(bytes)).toEqual([
      '0 B',
      '999 B',
      '1.0 kB',
      '3.0 MB',
      '65.0 GB',
    ]);
    expect(bytes(null)).toBe('-');
    expect([8.4, 1_240].map(elapsed)).toEqual(['8 ms', '1.2 s']);
  });
});
