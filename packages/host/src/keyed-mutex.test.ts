import { describe, expect, it } from 'vitest';
import { KeyedMutex } from './keyed-mutex.ts';

describe('a keyed mutex', () => {
  it('come one after the other for a key, and at once for different keys', async () => {
    const turns = new KeyedMutex<string>();
    const order: string[] = [];
    const first = Promise.withResolvers<void>();
    const all = [
      turns.run('a', () => first.promise.then(() => void order.push('a1'))),
      turns.run('a', async () => void order.push('a2')),
      turns.run('b', async () => void order.push('b')),
    ];
    await all[2];
    first.resolve();
    await Promise.all(all);
    expect(order).toEqual(['b', 'a1', 'a2']);
  });

  it('go on after one that failed', async () => {
    const turns = new KeyedMutex<string>();
    const failing = turns.run('a', () => Promise.reject(new Error('broken')));
    const after = turns.run('a', async () => 'fine');
    await expect(failing).rejects.toThrow('broken');
    expect(await after).toBe('fine');
  });

  it('are given up by the waiting when aborted, and never begin then', async () => {
    const turns = new KeyedMutex<string>();
    const first = Promise.withResolvers<void>();
    const stop = new AbortController();
    let began = false;
    const working = turns.run('a', () => first.promise);
    const waiting = turns.run(
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
    await turns.run('a', async () => {});
    expect(began).toBe(false);
  });

  it('wait for work that was given up but has not ended', async () => {
    const turns = new KeyedMutex<string>();
    const first = Promise.withResolvers<void>();
    const stop = new AbortController();
    const order: string[] = [];
    const given = turns.run('a', () => first.promise.then(() => void order.push('first')), stop.signal);
    await Promise.resolve();
    stop.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
    const next = turns.run('a', async () => void order.push('next'));
    first.resolve();
    await next;
    expect(order).toEqual(['first', 'next']);
  });
});
