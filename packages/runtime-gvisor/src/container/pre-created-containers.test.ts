import { describe, expect, it } from 'vitest';
import { defaultCount } from './pre-created-containers.ts';

const GIB = 1024 ** 3;

describe('the default number of pre-created containers', () => {
  it('is a small share of the memory, within bounds', () => {
    expect([1, 8, 16, 256].map((gibibytes) => defaultCount(gibibytes * GIB))).toEqual([2, 5, 10, 16]);
  });
});
