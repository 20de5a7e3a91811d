import { describe, expect, it } from 'vitest';
import { Turns } from './turns.ts';

describe('turns', () => {
  it('are taken one after the other for one key, after a failure too', async () => {
    const turns = new Turns<string>();
    const order: string[] = [];
    let fail = (_: Error) => {};
    const first = turns.take('a', () => {
      order.push('first');
      return new Promise<never>((_, reject) => {
        fail = reject;
      });
    });
    const second = turns.take('a', async () => order.push('second'));
    await turns.take('b', async () => order.push('other key'));
    expect(order).toEqual(['first', 'other key']);

    fail(new Error('first failed'));
    await expect(first).rejects.toThrow('first failed');
    await second;
    expect(order).toEqual(['first', 'other key', 'second']);
  });
});
