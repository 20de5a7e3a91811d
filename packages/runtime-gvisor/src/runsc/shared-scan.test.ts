import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { SharedScan } from './shared-scan.ts';

describe('a shared scan', () => {
  it('gives every caller a scan that begins after the call, and all that wait the same one', async () => {
    let begun = 0;
    const scan = new SharedScan(async () => {
      const number = ++begun;
      await nextTurn();
      return number;
    });
    const first = [scan.run(), scan.run()];
    await Promise.resolve();
    expect(begun).toBe(1);
    const later = [scan.run(), scan.run(), scan.run()];
    expect(await Promise.all(first)).toEqual([1, 1]);
    expect(await Promise.all(later)).toEqual([2, 2, 2]);
    expect(await scan.run()).toBe(3);
  });

  it('fails for its own callers only', async () => {
    let isBroken = true;
    const scan = new SharedScan(async () => {
      if (isBroken) throw new Error('broken');
      return 'scanned';
    });
    await expect(scan.run()).rejects.toThrow('broken');
    isBroken = false;
    expect(await scan.run()).toBe('scanned');
  });
});
