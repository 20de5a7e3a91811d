import type { EventView, SandboxState, SandboxView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { lanesOf, runningShare } from './activity.ts';

const MINUTE = 60_000;
const TO = 1_800_000_000_000;
const range = { from: TO - 10 * MINUTE, to: TO, whole: false };
const ago = (minutes: number) => TO - minutes * MINUTE;
const change = (name: string, minutesAgo: number, previousState: SandboxState | null, state: SandboxState) =>
  ({ sandboxId: `sbx_${name}`, at: ago(minutesAgo), previousState, state }) as unknown as EventView;
const sandbox = (name: string, state: SandboxState, createdAt = 0) =>
  ({ id: `sbx_${name}`, state, createdAt }) as unknown as SandboxView;

describe('the lanes of sandboxes', () => {
  it('show when each ran and slept', () => {
    const events = [
      change('a', 2, 'resuming', 'running'),
      change('a', 3, 'paused', 'resuming'),
      change('a', 8, 'pausing', 'paused'),
    ];
    const [lane] = lanesOf(events, [sandbox('a', 'running')], { ...range, whole: true }, 5);
    expect(lane?.parts).toEqual([
      { from: ago(10), to: ago(8), state: 'changing' },
      { from: ago(8), to: ago(3), state: 'asleep' },
      { from: ago(3), to: ago(2), state: 'changing' },
      { from: ago(2), to: TO, state: 'running' },
    ]);
    expect(lane?.since).toBe(ago(2));
    expect(runningShare(lane?.parts ?? [])).toBeCloseTo(0.2);
  });

  it('begin when the sandbox was created, and not before what the page knows', () => {
    const events = [change('b', 6, null, 'creating')];
    const lanes = lanesOf(events, [sandbox('a', 'paused'), sandbox('b', 'creating', ago(6))], range, 5);
    expect(lanes.map(({ parts, since }) => [parts, since])).toEqual([
      [[{ from: ago(6), to: TO, state: 'changing' }], ago(6)],
      [[{ from: ago(6), to: TO, state: 'asleep' }], null],
    ]);
  });

  it('are the sandboxes that changed last, in an order that stays the same when they change again', () => {
    const all = [1, 2, 3].map((n) => sandbox(`s${n}`, 'running', ago(30 - n)));
    const events = [change('s1', 1, 'resuming', 'running'), change('s3', 2, 'resuming', 'running')];
    expect(lanesOf(events, all, range, 2).map(({ sandbox: { id } }) => id)).toEqual(['sbx_s3', 'sbx_s1']);
  });

  it('leave out killed sandboxes', () => {
    expect(lanesOf([], [sandbox('a', 'killed')], range, 5)).toEqual([]);
  });
});
