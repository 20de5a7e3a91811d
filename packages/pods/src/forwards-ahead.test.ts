import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { ManualClock } from '@torpor/engine/testing';
import { beforeEach, describe, expect, it } from 'vitest';
import { ForwardsAhead } from './forwards-ahead.ts';

describe('port-forwards that are opened ahead', () => {
  let clock: ManualClock;
  let opened: PassThrough[];
  let ahead: ForwardsAhead;
  beforeEach(() => {
    clock = new ManualClock();
    opened = [];
    ahead = new ForwardsAhead(clock, async () => {
      const stream = new PassThrough();
      opened.push(stream);
      return stream;
    });
  });

  it('are given to one caller each, as if they were new', async () => {
    ahead.add('pod');
    ahead.add('pod');
    const stream = await ahead.take('pod');
    expect([stream, opened.length]).toEqual([opened[0], 1]);
    expect(await ahead.take('pod')).toBeUndefined();
    stream?.on('data', (chunk) => stream.emit('flowing', String(chunk)));
    const flowing = once(stream as PassThrough, 'flowing');
    stream?.write('answer');
    expect(await flowing).toEqual(['answer']);
  });

  it('are not taken when the pod has ended them meanwhile', async () => {
    ahead.add('pod');
    await Promise.resolve();
    opened[0]?.end();
    await expect.poll(() => opened[0]?.destroyed).toBe(true);
    expect(await ahead.take('pod')).toBeUndefined();
  });

  it('are closed when no caller has taken them for some seconds', async () => {
    ahead.add('pod');
    clock.advance(10_000);
    await expect.poll(() => opened[0]?.destroyed).toBe(true);
    expect(await ahead.take('pod')).toBeUndefined();
  });

  it('are of no consequence when they cannot be opened', async () => {
    ahead = new ForwardsAhead(clock, () => Promise.reject(new Error('the pod does not run')));
    ahead.add('pod');
    expect(await ahead.take('pod')).toBeUndefined();
  });
});
