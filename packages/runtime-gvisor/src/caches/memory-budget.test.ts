import { describe, expect, it } from 'vitest';
import { budgetBytes, type Droppable, MemoryBudget } from './memory-budget.ts';
import { missingBytes } from './memory-pressure.ts';

const GIB = 1024 ** 3;

describe('the budget of caches', () => {
  const dropped: string[] = [];
  const thing = (name: string, bytes: number): Droppable => ({
    bytes,
    drop: async () => void dropped.push(name),
  });

  it('drops the least recently used thing first, whatever kind it is, and only as many as needed', () => {
    dropped.length = 0;
    const budget = new MemoryBudget(100);
    const [a, b, c] = [thing('a', 40), thing('b', 40), thing('c', 20)];
    for (const each of [a, b, c]) expect(budget.add(each)).toBe(true);
    budget.add(a);
    expect(budget.add(thing('d', 30))).toBe(true);
    expect(dropped).toEqual(['b']);
    expect(budget.usedBytes).toBe(90);
  });

  it('refuses what does not fit by itself, and drops nothing for it', () => {
    dropped.length = 0;
    const budget = new MemoryBudget(100);
    budget.add(thing('a', 100));
    expect(budget.add(thing('b', 101))).toBe(false);
    expect(dropped).toEqual([]);
  });

  it('counts nothing twice, and nothing that its owner has taken', () => {
    const budget = new MemoryBudget(100);
    const a = thing('a', 60);
    budget.add(a);
    budget.add(a);
    expect(budget.usedBytes).toBe(60);
    budget.remove(a);
    expect(budget.isEmpty).toBe(true);
  });

  it('gives back as much as is missing, and waits until it is gone', async () => {
    const budget = new MemoryBudget(1_000);
    let isGone = false;
    const drop = async () => {
      await new Promise((resolve) => setTimeout(resolve, 10));
      isGone = true;
    };
    budget.add({ bytes: 10, drop });
    budget.add(thing('later', 10));
    budget.free(5);
    expect(budget.usedBytes).toBe(10);
    await budget.settled();
    expect(isGone).toBe(true);
  });

  it('is a quarter of the machine unless an operator sets it', () => {
    expect(budgetBytes(0, 16 * GIB)).toBe(4 * GIB);
    expect(budgetBytes(512, 16 * GIB)).toBe(GIB / 2);
  });
});

describe('memory pressure', () => {
  it('wants a tenth of the memory free, and at most one GiB', () => {
    expect(missingBytes({ totalBytes: 4 * GIB, availableBytes: GIB })).toBe(0);
    expect(missingBytes({ totalBytes: 4 * GIB, availableBytes: 0.3 * GIB })).toBe(Math.ceil(0.1 * GIB));
    expect(missingBytes({ totalBytes: 64 * GIB, availableBytes: 2 * GIB })).toBe(0);
    expect(missingBytes({ totalBytes: 64 * GIB, availableBytes: 0 })).toBe(GIB);
  });
});
