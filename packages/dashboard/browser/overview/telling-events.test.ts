import type { EventView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { briefly, tellingEvents } from './telling-events.ts';

const event = (type: string, operationId: string | null, data: object = {}) =>
  ({ type, operationId, data }) as unknown as EventView;
const types = (events: readonly EventView[]) => tellingEvents(events, 10).map(({ type }) => type);

describe('the events of the overview', () => {
  it('tell an operation once, by its end', () => {
    const events = [
      event('job.suspended', 'op_1'),
      event('sandbox.paused', 'op_1'),
      event('operation.phase', 'op_1'),
      event('sandbox.pausing', 'op_1'),
    ];
    expect(types(events)).toEqual(['sandbox.paused']);
  });

  it('tell the begin of what is under way', () => {
    expect(types([event('operation.phase', 'op_1'), event('sandbox.resuming', 'op_1')])).toEqual([
      'sandbox.resuming',
    ]);
  });

  it('tell no wake that belongs to a snapshot, and no deletion by rule', () => {
    const events = [
      event('checkpoint.deleted', null, { why: 'unreferenced' }),
      event('sandbox.resumed', 'op_1'),
      event('sandbox.resuming', 'op_1', { reason: 'snapshot' }),
      event('sandbox.paused', 'op_1', { reason: 'snapshot' }),
    ];
    expect(types(events)).toEqual(['sandbox.paused']);
  });

  it('leave out what every event of its type says', () => {
    const paused = event('sandbox.paused', 'op_1', {
      reason: 'snapshot',
      endsAt: 5,
      lost: ['processes', 'connections'],
    });
    expect(briefly(paused).data).toEqual({ lost: ['processes'] });
  });
});
