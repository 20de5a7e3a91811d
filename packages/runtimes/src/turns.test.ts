import { describe, expect, it } from 'vitest';
import { Turns } from './turns.ts';

describe('turns', () => {
  it('come one after the other for a key, and at once for different keys', async () => {
    const turns = new Turns<string>();
    const order: string[] = [];
    const first = Promise.withResolvers<void>();
    const all = [
      turns.take('a', () => first.promise.then(() => void order.push('a1'))),
      turns.take('a', async () => void order.push('a2')),
      turns.take('b', async () => void order.push('b')),
    ];
    await all[2];
    first.resolve();
    await Promise.all(all);
    expect(order).toEqual(['b', 'a1', 'a2']);
  });

  it('go on after one that failed', async () => {
    const turns = new Turns<string>();
    const failing = turns.take('a', () => Promise.reject(new Error('broken')));
    const after = turns.take('a', async () => 'fine');
    await expect(failing).rejects.toThrow('broken');
    expect(await after).toBe('fine');
  });

  it('are given up by the waiting when aborted, and never begin then', async () => {
    const turns = new Turns<string>();
    const first = Promise.withResolvers<void>();
    const stop = new AbortController();
    let began = false;
    const working = turns.take('a', () => first.promise);
    const waiting = turns.take(
      'a',
      async () => {
        began = true;
      },
      stop.signal,
    );
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    first.resolve();
    await working;
    await turns.take('a', async () => {});
    expect(began).toBe(false);
  });

  it('wait for work that was given up but has not ended', async () => {
    const turns = new Turns<string>();
    const first = Promise.withResolvers<void>();
    const stop = new AbortController();
    const order: string[] = [];
    const given = turns.take('a', () => first.promise.then(() => void order.push('first')), stop.signal);
    await Promise.resolve();
    stop.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
    const next = turns.take('a', async () => void order.push('next'));
    first.resolve();
    await next;
    expect(order).toEqual(['first', 'next']);
  });
});
