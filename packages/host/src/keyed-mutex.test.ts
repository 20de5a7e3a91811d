import { describe, expect, it } from 'vitest';
import { KeyedMutex } from './keyed-mutex.ts';

describe('KeyedMutex', () => {
  it('runs work one after the other for a key, and at once for different keys', async () => {
    const mutex = new KeyedMutex<string>();
    const order: string[] = [];
    const first = Promise.withResolvers<void>();
    const all = [
      mutex.run('a', () => first.promise.then(() => void order.push('a1'))),
      mutex.run('a', async () => void order.push('a2')),
      mutex.run('b', async () => void order.push('b')),
    ];
    await all[2];
    first.resolve();
    await Promise.all(all);
    expect(order).toEqual(['b', 'a1', 'a2']);
  });

  it('continues after work that failed', async () => {
    const mutex = new KeyedMutex<string>();
    const failing = mutex.run('a', () => Promise.reject(new Error('broken')));
    const after = mutex.run('a', async () => 'fine');
    await expect(failing).rejects.toThrow('broken');
    expect(await after).toBe('fine');
  });

  it('rejects waiting work on abort, and never begins it', async () => {
    const mutex = new KeyedMutex<string>();
    const first = Promise.withResolvers<void>();
    const stop = new AbortController();
    let began = false;
    const working = mutex.run('a', () => first.promise);
    const waiting = mutex.run(
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
    await mutex.run('a', async () => {});
    expect(began).toBe(false);
  });

  it('waits for aborted work that has not ended yet', async () => {
    const mutex = new KeyedMutex<string>();
    const first = Promise.withResolvers<void>();
    const stop = new AbortController();
    const order: string[] = [];
    const given = mutex.run('a', () => first.promise.then(() => void order.push('first')), stop.signal);
    await Promise.resolve();
    stop.abort(new Error('enough'));
    await expect(given).rejects.toThrow('enough');
    const next = mutex.run('a', async () => void order.push('next'));
    first.resolve();
    await next;
    expect(order).toEqual(['first', 'next']);
  });
});
