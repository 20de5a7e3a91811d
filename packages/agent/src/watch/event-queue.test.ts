import { TorporError } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import { EventQueue } from './event-queue.ts';

const signal = new AbortController().signal;

describe('an event queue', () => {
  it('delivers events in order, at once or to a waiting reader', async () => {
    const queue = new EventQueue<number>(10);
    const first = queue.next(signal);
    queue.push([1, 2]);
    expect([await first, await queue.next(signal)]).toEqual([1, 2]);
    expect(queue.drain()).toEqual([]);
  });

  it('reports dropped events once, after the events before them, and goes on', () => {
    const queue = new EventQueue<number>(2);
    queue.push([1, 2, 3, 4]);
    expect(queue.drain()).toEqual([1, 2]);
    expect(() => queue.drain()).toThrow('2 events were dropped');
    queue.push([5]);
    expect(queue.drain()).toEqual([5]);
  });

  it('reports a failure after the last event, also to a waiting reader', async () => {
    const queue = new EventQueue<number>(2);
    queue.push([1]);
    queue.fail(new TorporError('not_found', 'gone'));
    expect(await queue.next(signal)).toBe(1);
    await expect(queue.next(signal)).rejects.toThrow('gone');
  });

  it('rejects a waiting reader on abort', async () => {
    const stop = new AbortController();
    const waiting = new EventQueue<number>(2).next(stop.signal);
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });
});
