import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { describe, expect, it } from 'vitest';
import { MemoryBudget } from '../caches/memory-budget.ts';
import { keptBytes, whyNotWarm } from './warm-bounds.ts';

const MIB = 1024 * 1024;

describe('the memory of a paused sandbox', () => {
  const budget = new MemoryBudget(100 * MIB);
  const ctx = {
    settings: DEFAULT_RUNTIME_SETTINGS,
    serverTag: 'abcdef',
    warmMemory: budget,
    cannotContinue: new Set<string>(),
  };
  const record = { container: { id: 'abcdef-berth-0123456789ab' }, runsc: 'digest' };

  it.each([40, 68, 69, 99, 101])('of %i MB fits when the budget would take it', (megabytes) => {
    const memoryBytes = megabytes * MIB;
    const thing = { bytes: keptBytes(memoryBytes), drop: async () => {} };
    const fits = budget.add(thing);
    budget.remove(thing);
    expect(whyNotWarm(ctx, record, memoryBytes) === null).toBe(fits);
  });

  it('counts with its sentry, and the reason says so', () => {
    expect(whyNotWarm(ctx, record, 99 * MIB)).toBe(
      'it takes 131 MB of memory, and 100 MB may be kept in all',
    );
  });
});
