import { describe, expect, it } from 'vitest';
import { warmPoolSize } from './warm-pool.ts';

const GIB = 1024 ** 3;

describe('the size of the warm pool', () => {
  it('is a small share of the memory, within bounds', () => {
    expect([1, 8, 16, 256].map((gibibytes) => warmPoolSize(gibibytes * GIB))).toEqual([2, 5, 10, 16]);
  });
});
