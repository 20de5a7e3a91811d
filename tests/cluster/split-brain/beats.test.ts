import { describe, expect, it } from 'vitest';
import { overlaps, parseBeats, runsOf } from './beats.ts';

describe('the beats of a sandbox', () => {
  it('are no overlap when each run ends before the next one begins', () => {
    const runs = runsOf(parseBeats('1.00 1:9\n1.20 1:9\n1.21 2:12\n1.40 2:12\n2.00 3:7\n'));
    expect(runs.map(({ run, beats }) => [run, beats])).toEqual([
      ['1:9', 2],
      ['2:12', 2],
      ['3:7', 1],
    ]);
    expect(overlaps(runs)).toEqual([]);
  });

  it('overlap when an earlier run beats once more after a later one began, also beyond the run between them', () => {
    const [found, ...others] = overlaps(
      runsOf(parseBeats('1.00 1:9\n1.50 2:12\n1.60 2:12\n1.70 1:9\n1.65 3:8\n')),
    );
    expect(found).toBe('2:12 began at 1500, and 1:9 beat until 1700');
    expect(others).toHaveLength(1);
  });

  it('overlap when two processes run for one generation', () => {
    expect(overlaps(runsOf(parseBeats('1.00 4:9\n1.10 4:33\n1.20 4:9\n')))).toHaveLength(1);
  });
});
