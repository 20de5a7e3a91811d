import type { EventView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { wakesOf } from './wakes.ts';

const M = 60_000;
const event = (type: string, at: number, durationMs?: number) =>
  ({ type, at, data: durationMs === undefined ? {} : { durationMs } }) as unknown as EventView;

describe('wakes', () => {
  it('are counted per minute, with their median duration', () => {
    const events = [
      event('sandbox.resumed', 3.5 * M, 90),
      event('sandbox.resumed', 3.2 * M, 30),
      event('sandbox.paused', 2 * M),
      event('sandbox.resumed', 1.5 * M, 60),
      event('sandbox.created', M),
    ];
    const { perMinute, durations, medianMs } = wakesOf(events, 0, 4 * M);
    expect(perMinute.map(({ value }) => value)).toEqual([0, 1, 0, 2]);
    expect(durations.map(({ value }) => value)).toEqual([60, 30, 90]);
    expect(medianMs).toBe(60);
  });

  it('are not the restarts of a snapshot or a rollback', () => {
    const operation = { operationId: 'op_1' };
    const events = [
      { ...event('sandbox.resumed', 2 * M, 90), ...operation },
      { ...event('sandbox.resuming', 1.9 * M), ...operation, data: { reason: 'snapshot' } },
    ] as EventView[];
    expect(wakesOf(events, 0, 3 * M).durations).toEqual([]);
  });

  it('are not shown as none for a time that the page does not know', () => {
    const { perMinute } = wakesOf([event('sandbox.created', 2 * M)], 0, 3 * M);
    expect(perMinute.map(({ at }) => at)).toEqual([2 * M, 3 * M]);
    expect(wakesOf([], 0, 3 * M).medianMs).toBeUndefined();
  });
});
