import { describe, expect, it } from 'vitest';
import { gapsOf, runsOf } from './chart.tsx';

describe('a chart', () => {
  it('has a gap where nothing was measured', () => {
    const points = [0, 5, 10, 60, 65].map((at) => ({ at, value: 1 }));
    expect(runsOf(points, 12).map((run) => run.map(({ at }) => at))).toEqual([
      [0, 5, 10],
      [60, 65],
    ]);
    expect(runsOf([], 12)).toEqual([]);
  });

  it('marks the time between two measurements that are too far apart', () => {
    const points = [0, 5, 60, 65, 100].map((at) => ({ at, value: 1 }));
    expect(gapsOf(runsOf(points, 12))).toEqual([
      [5, 60],
      [65, 100],
    ]);
    expect(gapsOf([])).toEqual([]);
  });
});
