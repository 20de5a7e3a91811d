import { TorporError } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import { EventQueue } from './event-queue.ts';

const signal = new AbortController().signal;

describe('an event queue', () => {
  it('hands events over in order, now or later', async () => {
    const queue = new EventQueue<number>(10);
    const first = queue.next(signal);
    queue.push([1, 2]);
    expect([await first, await queue.next(signal)]).toEqual([1, 2]);
    expect(queue.drain()).toEqual([]);
  });

  it('tells a loss once, after what came before it, and goes on', () => {
    const queue = new EventQueue<number>(2);
    queue.push([1, 2, 3, 4]);
    expect(queue.drain()).toEqual([1, 2]);
    expect(() => queue.drain()).toThrow('2 events were dropped');
    queue.push([5]);
    expect(queue.drain()).toEqual([5]);
  });

  it('tells a failure after the last event, to a waiting reader too', async () => {
    const queue = new EventQueue<number>(2);
    queue.push([1]);
    queue.fail(new TorporError('not_found', 'gone'));
    expect(await queue.next(signal)).toBe(1);
    await expect(queue.next(signal)).rejects.toThrow('gone');
  });

  it('lets a reader go who is told to stop', async () => {
    const stop = new AbortController();
    const waiting = new EventQueue<number>(2).next(stop.signal);
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });
});
