import type { EventView, SandboxId, SandboxState, SandboxView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { statesOverTime } from './states.ts';

const MINUTE = 60_000;
const TO = 1_800_000_000_000;

function change(
  name: string,
  minutesAgo: number,
  previousState: SandboxState | null,
  state: SandboxState,
): EventView {
  const sandboxId = `sbx_${name}` as SandboxId;
  return { sandboxId, at: TO - minutesAgo * MINUTE, previousState, state } as unknown as EventView;
}

function now(name: string, state: SandboxState): SandboxView {
  return { id: `sbx_${name}`, state } as unknown as SandboxView;
}

const range = { from: TO - 10 * MINUTE, to: TO, whole: false };
const at = (samples: ReturnType<typeof statesOverTime>, minutesAgo: number) =>
  samples.findLast((sample) => sample.at <= TO - minutesAgo * MINUTE)?.counts;

describe('states over time', () => {
  it('follow the changes of the ledger', () => {
    const events = [
      change('a', 2, 'pausing', 'paused'),
      change('b', 3, 'creating', 'running'),
      change('b', 4, null, 'creating'),
      change('a', 8, 'resuming', 'running'),
      change('a', 8, 'paused', 'resuming'),
    ];
    const samples = statesOverTime(events, [now('a', 'paused'), now('b', 'running')], range);
    expect(at(samples, 7)).toEqual({ running: 1, waking: 0, asleep: 0 });
    expect(at(samples, 3.5)).toEqual({ running: 1, waking: 1, asleep: 0 });
    expect(at(samples, 0)).toEqual({ running: 1, waking: 0, asleep: 1 });
  });

  it('have the exact moments, so that a short wake does not look long', () => {
    const events = [change('a', 3.99, 'resuming', 'running'), change('a', 4, 'paused', 'resuming')];
    const samples = statesOverTime(events, [now('a', 'running')], { ...range, whole: true });
    expect(samples.map((sample) => (TO - sample.at) / MINUTE)).toEqual([10, 4, 3.99, 0]);
  });

  it('show nothing before the oldest event that is known', () => {
    const samples = statesOverTime([change('a', 4, 'paused', 'resuming')], [], range);
    expect(samples[0]?.at).toBe(TO - 4 * MINUTE);
  });

  it('count sandboxes that did not change all the time, when the whole ledger is known', () => {
    const samples = statesOverTime([], [now('a', 'running')], { ...range, whole: true });
    expect(samples[0]).toEqual({ at: range.from, counts: { running: 1, waking: 0, asleep: 0 } });
  });

  it('count a killed sandbox until it was killed', () => {
    const events = [change('a', 2, 'killing', 'killed'), change('a', 2, 'running', 'killing')];
    const samples = statesOverTime([...events, change('x', 9, null, 'creating')], [], range);
    expect(at(samples, 5)?.running).toBe(1);
    expect(at(samples, 1)?.running).toBe(0);
  });
});
