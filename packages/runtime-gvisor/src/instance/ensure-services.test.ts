import { systemClock } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import type { ProcessInfo } from '@torpor/envd';
import { serviceTag } from '@torpor/envd';
import type { Service } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS, serviceProcess } from '@torpor/runtime-shared';
import { expect, it } from 'vitest';
import type { RuntimeContext } from '../runtime-context.ts';
import type { StartOrder } from '../start.ts';
import type { AgentSetup } from './agent-setup.ts';
import { ensureServices } from './ensure-services.ts';

const web: Service = { name: 'web', command: 'node server.js', port: 3000 };
const running = {
  pid: 7,
  tag: serviceTag('web'),
  config: serviceProcess(web, 3000),
} as unknown as ProcessInfo;

/** With an agent of which only what is asked of it here is there. */
function wake({ tagged, listed }: { tagged: readonly ProcessInfo[]; listed: readonly ProcessInfo[] }) {
  const calls: string[] = [];
  const process = {
    list: async () => {
      calls.push('list');
      return { processes: listed };
    },
    start: () => {
      calls.push('start');
      throw new Error('it is running already');
    },
  };
  const dial = async () => ({ host: '127.0.0.1', port: 3000 });
  const order = { spec: { services: [web] }, use: 'memory', dial } as unknown as StartOrder;
  const setUp = { agent: { process }, tagged, probes: [] } as unknown as AgentSetup & { probes: [] };
  const done = ensureServices(
    { clock: systemClock, settings: DEFAULT_RUNTIME_SETTINGS } as RuntimeContext,
    order,
    setUp,
    unhurried,
  );
  return done.then(() => calls);
}

it('does not ask again for what the agent has told of itself', async () => {
  expect(await wake({ tagged: [running], listed: [] })).toEqual([]);
});

it('asks an agent of an earlier version, which tells nothing of itself, and starts nothing twice', async () => {
  expect(await wake({ tagged: [], listed: [running] })).toEqual(['list']);
});
