import { describe, expect, it } from 'vitest';
import { forEachBounded } from './for-each-bounded.ts';

const nextTick = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('forEachBounded', () => {
  it('runs every item once, and never more than the limit at a time', async () => {
    const seen: number[] = [];
    let running = 0;
    let most = 0;
    await forEachBounded([...Array(20).keys()], 3, async (item) => {
      most = Math.max(most, ++running);
      await nextTick();
      running--;
      seen.push(item);
    });
    expect(seen.sort((a, b) => a - b)).toEqual([...Array(20).keys()]);
    expect(most).toBe(3);
  });

  it('starts no item after a failure, and rejects only when the running ones have ended', async () => {
    const started: number[] = [];
    let ended = 0;
    const failing = forEachBounded([0, 1, 2, 3], 2, async (item) => {
      started.push(item);
      if (item === 0) throw new Error('first');
      await nextTick();
      ended++;
      throw new Error('second');
    });
    await expect(failing).rejects.toThrow('first');
    expect(started).toEqual([0, 1]);
    expect(ended).toBe(1);
  });

  it('takes items from an async generator, which is closed after a failure', async () => {
    const seen: number[] = [];
    let isClosed = false;
    async function* numbers() {
      try {
        for (let n = 0; n < 5; n++) {
          await nextTick();
          yield n;
        }
      } finally {
        isClosed = true;
      }
    }
    await forEachBounded(numbers(), 3, async (n, index) => {
      expect(index).toBe(n);
      await nextTick();
      seen.push(n);
    });
    expect(seen).toEqual([0, 1, 2, 3, 4]);
    isClosed = false;
    const failing = forEachBounded(numbers(), 2, async (n) => {
      if (n === 1) throw new Error('second');
    });
    await expect(failing).rejects.toThrow('second');
    expect(isClosed).toBe(true);
  });

  it('starts nothing after an abort', async () => {
    const abort = new AbortController();
    const started: number[] = [];
    const aborted = forEachBounded(
      [0, 1, 2],
      1,
      async (item) => {
        started.push(item);
        abort.abort(new Error('given up'));
      },
      abort.signal,
    );
    await expect(aborted).rejects.toThrow('given up');
    expect(started).toEqual([0]);
  });
});
