import { describe, expect, it } from 'vitest';
import { makeWorld } from '../../testing/world.ts';
import { openGate, type TrafficGate } from '../ports/traffic-gate.ts';

describe('the traffic gate', () => {
  it('of a killed sandbox cuts active exchanges before it opens for the waiting requests', async () => {
    const asked: string[] = [];
    const gate: TrafficGate = {
      ...openGate,
      abortExchanges: async () => void asked.push('abort'),
      open: async () => void asked.push('open'),
    };
    const world = await makeWorld('sqlite', { parts: () => ({ gate }) });
    const { id } = (await world.engine.create({ org: 'org' }, {})).sandbox;
    asked.length = 0;
    await world.engine.kill({ org: 'org' }, id);
    expect(asked).toEqual(['abort', 'open']);
    await world.dispose();
  });
});
