import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ReplayWindow } from './replay-window.ts';

describe('a replay window', () => {
  it('accepts every number once, in any order within its width', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 60_000 }), { maxLength: 300 }), (numbers) => {
        const window = new ReplayWindow(1_000);
        const seen = new Set<number>();
        for (const number of numbers) {
          expect(window.accept('s', number, 0)).toBe(!seen.has(number));
          seen.add(number);
        }
      }),
    );
  });

  it('refuses numbers that are too old to be known', () => {
    const window = new ReplayWindow(1_000);
    expect(window.accept('s', 200_000, 0)).toBe(true);
    expect(window.accept('s', 200_000 - 65_536, 0)).toBe(false);
    expect(window.accept('s', 200_000 - 65_535, 0)).toBe(true);
  });

  it('takes a number for new again when the bits of older numbers come around', () => {
    const window = new ReplayWindow(1_000);
    for (const number of [1, 65_537, 131_073]) expect(window.accept('s', number, 0)).toBe(true);
  });

  it('keeps processes apart', () => {
    const window = new ReplayWindow(1_000);
    expect(window.accept('one', 1, 0)).toBe(true);
    expect(window.accept('two', 1, 0)).toBe(true);
    expect(window.accept('one', 1, 0)).toBe(false);
  });
});
