import { setImmediate as turn } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../testing/manual-clock.ts';
import { Foreground } from './foreground.ts';

const { signal } = new AbortController();

let clock: ManualClock;
let foreground: Foreground;
let ends: (() => void)[];
beforeEach(() => {
  clock = new ManualClock();
  foreground = new Foreground(clock);
  ends = [];
});

/** An operation that lasts until `ends` is called. */
function begin(): void {
  const { promise, resolve } = Promise.withResolvers<void>();
  void foreground.run(() => promise);
  ends.push(resolve);
}

/** Whether work that asks now goes on, without waiting. */
async function goesOn(): Promise<boolean> {
  let isOn = false;
  void foreground.giveWay(signal).then(() => {
    isOn = true;
  });
  await turn();
  return isOn;
}

/** How many of these milliseconds work that does nothing but ask, and takes ten milliseconds between two pieces, goes on. */
async function workedMs(outOf: number): Promise<number> {
  let worked = 0;
  for (let ms = 0; ms < outOf; ms += 10) {
    if (await goesOn()) worked += 10;
    clock.advance(10);
    await turn();
  }
  return worked;
}

describe('work in the background', () => {
  it('goes on while no operation is under way', async () => {
    expect(await goesOn()).toBe(true);
    await foreground.run(async () => {});
    expect(await goesOn()).toBe(true);
  });

  it('waits until the last operation has ended', async () => {
    begin();
    begin();
    const waiting = [foreground.giveWay(signal), foreground.giveWay(signal)];
    ends[0]?.();
    await turn();
    expect(await goesOn()).toBe(false);
    ends[1]?.();
    await Promise.all(waiting);
    expect(await goesOn()).toBe(true);
  });

  it('goes on after an operation that failed', async () => {
    await expect(foreground.run(() => Promise.reject(new Error('It failed.')))).rejects.toThrow('It failed.');
    expect(await goesOn()).toBe(true);
  });

  it('goes on after two seconds although the operation is still under way', async () => {
    begin();
    const waiting = foreground.giveWay(signal);
    clock.advance(2_000);
    await waiting;
    expect(await goesOn()).toBe(true);
  });

  it('gives way for at most half of the time, however long operations are under way', async () => {
    begin();
    const worked = await workedMs(20_000);
    expect(worked).toBeGreaterThanOrEqual(8_900);
    expect(worked).toBeLessThan(11_000);
  });

  it('gives way for two seconds again after it has gone on for as long', async () => {
    begin();
    const waiting = foreground.giveWay(signal);
    clock.advance(2_000);
    await waiting;
    ends[0]?.();
    await turn();
    clock.advance(2_000);
    begin();
    expect(await goesOn()).toBe(false);
    clock.advance(1_999);
    expect(await goesOn()).toBe(false);
    clock.advance(1);
    await turn();
    expect(await goesOn()).toBe(true);
  });

  it('stops waiting when it is aborted', async () => {
    begin();
    const stopping = new AbortController();
    const waiting = foreground.giveWay(stopping.signal);
    const reason = new Error('The server stops.');
    stopping.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await expect(foreground.giveWay(stopping.signal)).rejects.toBe(reason);
    ends[0]?.();
  });
});
