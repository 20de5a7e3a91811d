import type { EventView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { barOf, wakesOf, wakeTime } from './wakes.ts';

const M = 60_000;
const event = (type: string, at: number, durationMs?: number, kind = 'memory') =>
  ({
    type,
    at,
    data: durationMs === undefined ? {} : { durationMs, source: { kind } },
  }) as unknown as EventView;
const range = (to: number) => ({ from: 0, to, whole: false });

describe('wakes', () => {
  it('are counted per minute of the clock, with their durations', () => {
    const events = [
      event('sandbox.resumed', 3.5 * M, 90),
      event('sandbox.resumed', 3.2 * M, 30, 'files'),
      event('sandbox.paused', 2 * M),
      event('sandbox.resumed', 1.5 * M, 60),
      event('sandbox.created', M),
    ];
    const { minutes, wakes } = wakesOf(events, range(3.7 * M));
    expect(minutes).toEqual([
      { at: M, wakes: 1 },
      { at: 2 * M, wakes: 0 },
      { at: 3 * M, wakes: 2 },
    ]);
    expect(wakes.map(({ ms, fromMemory }) => [ms, fromMemory])).toEqual([
      [60, true],
      [30, false],
      [90, true],
    ]);
    expect(wakeTime(wakes, 0.5)).toBe(60);
    expect(wakeTime(wakes, 0.95)).toBe(90);
  });

  it('are not the restarts of a snapshot or a rollback', () => {
    const operation = { operationId: 'op_1' };
    const events = [
      { ...event('sandbox.resumed', 2 * M, 90), ...operation },
      { ...event('sandbox.resuming', 1.9 * M), ...operation, data: { reason: 'snapshot' } },
    ] as EventView[];
    expect(wakesOf(events, range(3 * M)).wakes).toEqual([]);
  });

  it('are not shown as none for a time that the page does not know', () => {
    const events = [event('sandbox.created', 2 * M)];
    expect(wakesOf(events, range(3 * M)).minutes.map(({ at }) => at)).toEqual([2 * M, 3 * M]);
    expect(wakesOf(events, { ...range(3 * M), whole: true }).minutes).toHaveLength(4);
    expect(wakeTime([], 0.5)).toBeUndefined();
  });
});

describe('the bar of a minute', () => {
  it('ends at the edges of the chart, and can be seen as soon as the minute has begun', () => {
    const whole = barOf(2 * M, range(10 * M));
    expect([whole.x, whole.width]).toEqual([expect.closeTo(0.212), expect.closeTo(0.076)]);
    const last = barOf(9 * M, range(9.5 * M));
    expect(last.x + last.width).toBeCloseTo(1);
    const begun = barOf(9 * M, range(9.01 * M));
    expect([begun.x + begun.width, begun.width]).toEqual([expect.closeTo(1), expect.closeTo(0.005)]);
    expect(barOf(-0.5 * M, range(10 * M)).x).toBe(0);
  });
});
