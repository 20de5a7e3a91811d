import { type LabCluster, startLabCluster, whyNoCluster } from '@torpor/pods/testing';
import type { SandboxId, SandboxState } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { type LabServer, startLabServer } from './lab-server.ts';
import { makeNamespace, NAMESPACE, podVariables } from './pod-subject.ts';

const why = whyNoCluster();
const ask = { what: 'answer', signal: new AbortController().signal };
const OUTAGE_MS = 60_000;
vi.setConfig({ testTimeout: 600_000, hookTimeout: 300_000 });

interface Case {
  readonly runtime: 'kubernetes' | 'agent-sandbox';
  readonly state: string;
  /** What is under way when the API server ends; absent: nothing. */
  readonly act?: (id: SandboxId) => Promise<unknown>;
  readonly id: SandboxId;
  readonly allowed: readonly SandboxState[];
}

/** With API servers in memory that fail in other ways, and each state by itself: `outage.campaign.test.ts`. */
describe.skipIf(why !== null)(
  `an API server that is away for a minute${why === null ? '' : `: ${why}`}`,
  () => {
    let cluster: LabCluster;
    let server: LabServer;
    let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
    beforeAll(async () => {
      cluster = await startLabCluster();
      await makeNamespace(cluster);
      dataDir = await makeDataDir();
      server = await startLabServer(dataDir.path, {
        variables: podVariables(cluster),
        settings: [
          'engine.reconcileEveryMs=1s',
          'engine.collectEveryMs=1s',
          'runtimes.kubernetesRequestMs=2s',
          'runtimes.agentSandboxMs=20s',
        ],
      });
    });
    afterAll(async () => {
      await server?.stop();
      await cluster?.stop();
      await dataDir?.remove();
    });

    async function prepared(): Promise<Case[]> {
      const { sandboxes } = server.torpor;
      const running = async (runtime: Case['runtime']) => {
        const { id } = await sandboxes.create({ runtime });
        await sandboxes.exec(id, 'echo kept > file');
        return id;
      };
      const paused = async () => {
        const id = await running('agent-sandbox');
        await sandboxes.pause(id);
        return id;
      };
      const [pod, volume] = ['kubernetes', 'agent-sandbox'] as const;
      const here = ['running', 'paused'] as const;
      return [
        { runtime: pod, state: 'running', id: await running(pod), allowed: ['running'] },
        { runtime: volume, state: 'running', id: await running(volume), allowed: ['running'] },
        { runtime: volume, state: 'paused', id: await paused(), allowed: ['paused'] },
        {
          runtime: volume,
          state: 'pausing',
          id: await running(volume),
          act: (id) => sandboxes.pause(id),
          allowed: here,
        },
        {
          runtime: volume,
          state: 'resuming',
          id: await paused(),
          act: (id) => sandboxes.resume(id),
          allowed: here,
        },
        {
          runtime: pod,
          state: 'killing',
          id: await running(pod),
          act: (id) => sandboxes.kill(id),
          allowed: ['killed'],
        },
        {
          runtime: volume,
          state: 'killing',
          id: await running(volume),
          act: (id) => sandboxes.kill(id),
          allowed: ['killed'],
        },
      ];
    }

    it('leaves every sandbox in a true state, and nothing without an owner (R76, R77, R82)', async () => {
      const { sandboxes } = server.torpor;
      const cases = await prepared();
      const asked: Promise<unknown>[] = cases.flatMap(({ act, id }) => (act === undefined ? [] : [act(id)]));
      const creates = (['kubernetes', 'agent-sandbox'] as const).map((runtime) =>
        sandboxes.create({ runtime }),
      );
      for (const one of [...asked, ...creates]) one.catch(() => {});
      // Long enough for the first requests to arrive, and not for the pods to start or end.
      await new Promise((resolve) => setTimeout(resolve, 150));
      await cluster.restartApiServer(async () => {
        const until = Date.now() + OUTAGE_MS;
        while (Date.now() < until) {
          for (const { state, id } of cases.filter(({ act }) => act === undefined))
            expect((await sandboxes.get(id)).state).toBe(state);
          await new Promise((resolve) => setTimeout(resolve, 2_000));
        }
      });
      await Promise.allSettled([...asked, ...creates]);
      for (const { runtime, state, id, allowed } of cases) {
        const settled = async () => {
          const view = await sandboxes.get(id);
          return allowed.includes(view.state) && view.evidence !== 'unknown'
            ? 'settled'
            : `${state} of ${runtime}: ${view.state}, ${view.evidence}`;
        };
        await expect.poll(settled, { timeout: 120_000, interval: 500 }).toBe('settled');
      }
      for (const { id, allowed } of cases.filter(({ allowed: states }) => !states.includes('killed'))) {
        if ((await sandboxes.get(id)).state === 'paused') await sandboxes.resume(id);
        expect((await sandboxes.exec(id, 'cat file')).stdout, allowed.join()).toBe('kept\n');
      }
      // What a create that failed has made is removed too.
      const alive = ['creating', 'running', 'pausing', 'paused', 'resuming'] as const;
      for await (const { id } of sandboxes.list({ state: alive })) await sandboxes.kill(id);
      const left = async () => {
        const names: string[] = [];
        for (const path of [
          ...['pods', 'secrets', 'persistentvolumeclaims'].map(
            (kind) => `api/v1/namespaces/${NAMESPACE}/${kind}`,
          ),
          `apis/agents.x-k8s.io/v1beta1/namespaces/${NAMESPACE}/sandboxes`,
        ])
          for (const { metadata } of (
            await cluster.admin.get<{ items: { metadata: { name: string } }[] }>(`/${path}`, ask)
          ).items)
            names.push(`${path.split('/').at(-1)}/${metadata.name}`);
        return names;
      };
      await expect.poll(left, { timeout: 180_000, interval: 1_000 }).toEqual([]);
    });
  },
);
