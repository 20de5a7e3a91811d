import type { EventView } from '@torpor/sdk';
import { describe, expect, it } from 'vitest';
import { originsIn, startsIn } from './checkpoint-origins.ts';

const event = (type: string, checkpointId: string | null, data: object) =>
  ({ type, sandboxId: 'sbx_1', checkpointId, data }) as unknown as EventView;

describe('the origin of a checkpoint', () => {
  it('is why its sandbox was sealed', () => {
    const events = [
      event('sandbox.paused', 'ckpt_1', { reason: 'idle' }),
      event('checkpoint.sealed', 'ckpt_2', { reason: 'snapshot' }),
      event('sandbox.recovered', 'ckpt_3', {}),
      event('sandbox.resumed', 'ckpt_4', { reason: 'request' }),
    ];
    expect([...originsIn(events)]).toEqual([
      ['ckpt_1', 'when it was idle'],
      ['ckpt_2', 'by a snapshot'],
      ['ckpt_3', 'recovered after a crash'],
    ]);
  });
});

describe('the start of a sandbox', () => {
  it('is the checkpoint that its first start used', () => {
    const started = event('sandbox.started', null, { source: { kind: 'memory', checkpointId: 'ckpt_1' } });
    expect([...startsIn([started, event('sandbox.started', null, {})])]).toEqual([['sbx_1', 'ckpt_1']]);
  });
});
