import type { EventView, OperationView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { timelineOf } from './timeline.ts';

const operation = (id: string, startedAt: number) => ({ id, startedAt }) as unknown as OperationView;
const event = (type: string, position: number, operationId: string | null = null) =>
  ({ type, position, at: position, operationId }) as unknown as EventView;

describe('the timeline', () => {
  it('puts the events of an operation into it, in order, and leaves out its phases', () => {
    const events = [
      event('job.suspended', 5, 'op_1'),
      event('sandbox.paused', 4, 'op_1'),
      event('operation.phase', 3, 'op_1'),
      event('sandbox.pausing', 2, 'op_1'),
      event('lifetime.set', 1),
    ];
    const [first, second] = timelineOf([operation('op_1', 2)], events);
    expect(first?.kind === 'operation' && first.events.map(({ type }) => type)).toEqual([
      'sandbox.pausing',
      'sandbox.paused',
      'job.suspended',
    ]);
    expect(second).toMatchObject({ kind: 'event', at: 1 });
  });

  it('shows an event alone whose operation is older than the known ones', () => {
    expect(timelineOf([], [event('sandbox.paused', 1, 'op_0')])).toMatchObject([{ kind: 'event' }]);
  });
});
