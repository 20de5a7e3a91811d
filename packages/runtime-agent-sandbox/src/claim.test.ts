import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Instance, systemClock } from '@torpor/engine';
import { NO_SPEC, newInstance, unhurried } from '@torpor/engine/testing';
import { readPodSettings } from '@torpor/pods';
import { HollowCluster, whyNotHollow } from '@torpor/pods/testing';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { AgentSandboxRuntime } from './agent-sandbox-runtime.ts';
import { agentSandboxRuntime } from './open-agent-sandbox-runtime.ts';

const why = whyNotHollow();
const TEMPLATE = {
  id: `ckpt_${'0'.repeat(20)}`,
  parts: { files: true, memory: false },
  needs: { image: 'hollow:1' },
  path: null,
} as const;

/** All requests of a start that takes a pod from the pool, beside the looks at the claim, and of the look that follows it. */
const START = [
  'POST sandboxclaims',
  'GET pods',
  'PATCH sandboxes',
  'POST secrets',
  'PATCH secrets',
  'DELETE sandboxclaims',
  'PATCH sandboxes',
  'PATCH sandboxclaims',
];
const OBSERVATION = ['GET sandboxes', 'GET pods'];

describe.skipIf(why !== null)(`a start from a warm pool${why === null ? '' : `: ${why}`}`, () => {
  let cluster: HollowCluster;
  let directory: string;
  let runtime: AgentSandboxRuntime;
  let instance: Instance;
  beforeAll(async () => {
    cluster = new HollowCluster();
    await cluster.start();
    directory = mkdtempSync(join(tmpdir(), 'torpor-claim-'));
    runtime = await openRuntime();
  });
  afterAll(async () => {
    await runtime?.close();
    await cluster?.stop();
    rmSync(directory, { recursive: true, force: true });
  });
  beforeEach(async () => {
    instance = newInstance();
    await expect
      .poll(() => [cluster.waiting().length, phasesOf('pods')], { timeout: 20_000 })
      .toEqual([1, ['Running']]);
  });

  const openRuntime = () =>
    agentSandboxRuntime({
      dataDir: directory,
      podSettings: readPodSettings({ ...cluster.variables, TORPOR_KUBERNETES_WARM_POOL: '1' }),
      settings: { ...DEFAULT_RUNTIME_SETTINGS, kubernetesRequestMs: 5_000, agentSandboxMs: 2_000 },
      clock: systemClock,
      report: () => {},
    });
  const phasesOf = (kind: string) =>
    [...cluster.api.objects]
      .filter(([path]) => path.includes(`/${kind}/`))
      .map(([, { status }]) => status?.['phase']);
  const start = (signal = unhurried) => runtime.start(instance, TEMPLATE, 'files', NO_SPEC, signal);
  const claims = () => cluster.names('sandboxclaims');
  /** What waits in the pool, with its key, and nothing else. */
  const onlyThePoolIsLeft = () =>
    expect
      .poll(() => [claims(), sandboxes(), cluster.names('pods'), cluster.names('secrets').length])
      .toEqual([[], cluster.waiting(), cluster.waiting(), 1]);
  const sandboxes = () => cluster.names('sandboxes').filter((name) => name !== 'sandboxes');

  /** Answers only the requests about objects that `isAnswered` accepts, given as method and kind. */
  function answerOnly(isAnswered: (request: string) => boolean): void {
    cluster.api.faultOf = (method, path) => {
      const kind = /\/namespaces\/[^/]+\/(\w+)/.exec(path)?.[1];
      const isWatch = method === 'GET' && path.endsWith('/pods');
      return kind === undefined || isWatch || isAnswered(`${method} ${kind}`) ? undefined : 'drop';
    };
  }

  async function requestsOf(work: () => Promise<unknown>): Promise<string[]> {
    const requests: string[] = [];
    answerOnly((request) => requests.push(request) > 0);
    await work();
    await expect.poll(claims, { timeout: 5_000 }).toEqual([]);
    cluster.api.faultOf = () => undefined;
    return requests.filter((request) => request !== 'GET sandboxclaims').sort();
  }

  it('makes no more requests than these, and none before the command that follows', async () => {
    expect(await requestsOf(start)).toEqual([...START].sort());
    const looked = await requestsOf(() => runtime.observe(instance, unhurried));
    expect(looked).toEqual([...OBSERVATION].sort());
    expect(await requestsOf(() => runtime.agent(instance, unhurried))).toEqual([]);
    await runtime.destroy(instance, unhurried);
    await onlyThePoolIsLeft();
  });

  it.each(Array.from({ length: START.length + 1 }, (_, n) => n))(
    'leaves nothing that is not found when its server dies after %i requests (R82)',
    async (answered) => {
      const stop = new AbortController();
      let made = 0;
      answerOnly(() => made++ < answered);
      await start(stop.signal).catch(() => {});
      stop.abort();
      cluster.api.faultOf = () => undefined;

      const next = await openRuntime();
      const found: Instance[] = [];
      for await (const one of next.list(unhurried)) found.push(one);
      expect(found).toEqual(answered === 0 ? [] : [instance]);
      for (const one of found) await next.destroy(one, unhurried);
      await onlyThePoolIsLeft();
      await next.close();
    },
  );

  it('keeps its Sandbox over a pause when its server died before the claim was gone', async () => {
    answerOnly((request) => request !== 'PATCH sandboxclaims');
    await start();
    await runtime.close();
    cluster.api.faultOf = () => undefined;
    runtime = await openRuntime();
    expect(claims()).toHaveLength(1);
    expect(await runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    const checkpointId = `ckpt_${'1'.repeat(20)}` as const;
    await runtime.freeze(instance, unhurried);
    await runtime.capture(instance, 'files', { checkpointId, path: '' }, unhurried);
    await runtime.destroy(instance, unhurried);
    expect(claims()).toEqual([]);
    expect(sandboxes()).toHaveLength(2);
    const kept = sandboxes().find((name) => !cluster.waiting().includes(name));
    cluster.deleteSandbox(kept ?? '');
    await onlyThePoolIsLeft();
  });
});
