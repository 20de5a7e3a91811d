import { systemClock } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import type { ProcessInfo } from '@torpor/envd';
import { serviceTag } from '@torpor/envd';
import type { Service } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS, serviceProcess } from '@torpor/runtime-shared';
import { expect, it } from 'vitest';
import type { AgentSetup } from './agent-setup.ts';
import { ensureServices } from './ensure-services.ts';

const web: Service = { name: 'web', command: 'node server.js', port: 3000 };
const running = {
  pid: 7,
  tag: serviceTag('web'),
  config: serviceProcess(web, 3000),
} as unknown as ProcessInfo;

/** Uses an agent that has only the calls used here. */
function wake({ tagged, listed }: { tagged: readonly ProcessInfo[]; listed: readonly ProcessInfo[] }) {
  const calls: string[] = [];
  const process = {
    list: async () => {
      calls.push('list');
      return { processes: listed };
    },
    start: () => {
      calls.push('start');
      throw new Error('the service is running already');
    },
  };
  const dial = async () => ({ host: '127.0.0.1', port: 3000 });
  const request = { spec: { services: [web] }, mode: 'memory', dial } as const;
  const setUp = { agent: { process }, tagged, probes: [] } as unknown as AgentSetup & { probes: [] };
  const done = ensureServices(
    { clock: systemClock, settings: DEFAULT_RUNTIME_SETTINGS },
    request,
    setUp,
    unhurried,
  );
  return done.then(() => calls);
}

it('says which ports of restored services have answered', async () => {
  const probed = (isReady: boolean) =>
    ensureServices(
      { clock: systemClock, settings: DEFAULT_RUNTIME_SETTINGS },
      { spec: { services: [web] }, mode: 'memory', dial: async () => ({ host: '127.0.0.1', port: 3000 }) },
      {
        tagged: [running],
        probes: [{ service: web, isReady: Promise.resolve(isReady) }],
      } as unknown as AgentSetup & { probes: [] },
      unhurried,
    );

  expect(await probed(true)).toEqual([3000]);
  expect(await probed(false)).toEqual([]);
});

it('does not ask for processes that the agent has reported in its setup', async () => {
  expect(await wake({ tagged: [running], listed: [] })).toEqual([]);
});

it('asks an agent of an earlier version for its processes, and starts nothing twice', async () => {
  expect(await wake({ tagged: [], listed: [running] })).toEqual(['list']);
});
