import { systemClock } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import type { ProcessInfo } from '@torpor/envd';
import { serviceTag } from '@torpor/envd';
import type { Service } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS, serviceProcess } from '@torpor/runtime-shared';
import { describe, expect, it } from 'vitest';
import type { AgentSetup } from './agent-setup.ts';
import { ensureServices } from './ensure-services.ts';

const web: Service = { name: 'web', command: 'node server.js', port: 3000 };
const running = {
  pid: 7,
  tag: serviceTag('web'),
  config: serviceProcess(web, 3000),
} as unknown as ProcessInfo;

interface Restored {
  readonly tagged?: readonly ProcessInfo[];
  readonly succeeded?: readonly ProcessInfo[];
  readonly listed?: readonly ProcessInfo[];
  readonly service?: Service;
  readonly mode?: 'memory' | 'files';
}

/** Uses an agent that has only the calls used here. Resolves to the calls. */
function wake({ tagged = [], succeeded = [], listed = [], service = web, mode = 'memory' }: Restored) {
  const calls: string[] = [];
  let isListening = tagged.length + listed.length > 0;
  const process = {
    list: async () => {
      calls.push('list');
      return { processes: listed };
    },
    async *start() {
      calls.push('start');
      isListening = true;
      yield {};
    },
  };
  const dial = async () => (isListening ? { host: '127.0.0.1', port: 3000 } : null);
  const request = { spec: { services: [service] }, mode, dial } as const;
  const setUp = { agent: { process }, tagged, succeeded, probes: [] } as unknown as AgentSetup & {
    probes: [];
  };
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
        succeeded: [],
        probes: [{ service: web, isReady: Promise.resolve(isReady) }],
      } as unknown as AgentSetup & { probes: [] },
      unhurried,
    );

  expect(await probed(true)).toEqual({ answered: [3000], succeeded: [] });
  expect(await probed(false)).toEqual({ answered: [], succeeded: [] });
});

it('does not ask for processes that the agent has reported in its setup', async () => {
  expect(await wake({ tagged: [running], listed: [] })).toEqual([]);
});

it('asks an agent of an earlier version for its processes, and starts nothing twice', async () => {
  expect(await wake({ tagged: [], listed: [running] })).toEqual(['list']);
});

describe('a service that had ended with exit code 0 in the restored memory', () => {
  const once: Service = { name: 'once', command: 'prepare' };
  const succeededRunOf = (service: Service) =>
    ({
      pid: 8,
      tag: serviceTag(service.name),
      config: serviceProcess(service, service.port),
    }) as unknown as ProcessInfo;

  it('is not started again', async () => {
    expect(await wake({ service: once, succeeded: [succeededRunOf(once)] })).toEqual([]);
  });

  it('is started from its files', async () => {
    const calls = await wake({ service: once, succeeded: [succeededRunOf(once)], mode: 'files' });
    expect(calls).toEqual(['start']);
  });

  it('is started when its declaration has changed', async () => {
    const changed = { ...once, command: 'prepare more' };
    expect(await wake({ service: changed, succeeded: [succeededRunOf(once)] })).toEqual(['start']);
  });

  it('is started when nothing listens on its port any more', async () => {
    expect(await wake({ succeeded: [succeededRunOf(web)] })).toEqual(['start']);
  });
});
