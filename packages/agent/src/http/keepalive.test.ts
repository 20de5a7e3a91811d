import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { keepaliveMs, withKeepalive } from './keepalive.ts';

describe('the keepalive interval', () => {
  it.each([
    [undefined, 90_000],
    ['50', 50_000],
    ['0', 90_000],
    ['-3', 90_000],
    ['soon', 90_000],
    ['99999999', 3_600_000],
  ])('%s', (header, expected) => {
    expect(keepaliveMs(new Headers(header === undefined ? {} : { 'keepalive-ping-interval': header }))).toBe(
      expected,
    );
  });
});

describe('a stream with keepalive messages', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('sends them only when the source is quiet, and ends with the source', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const items: (Promise<string> | undefined)[] = [Promise.resolve('first'), promise, undefined];
    const stream = withKeepalive(
      async () => items.shift(),
      () => 'ping',
      1000,
    );
    expect((await stream.next()).value).toBe('first');
    const quiet = stream.next();
    await vi.advanceTimersByTimeAsync(1000);
    expect((await quiet).value).toBe('ping');
    const more = stream.next();
    resolve('second');
    expect((await more).value).toBe('second');
    expect((await stream.next()).done).toBe(true);
  });

  it('fails with its source', async () => {
    const stream = withKeepalive(
      () => Promise.reject(new Error('broken')),
      () => 'ping',
      1000,
    );
    await expect(stream.next()).rejects.toThrow('broken');
  });
});
