import { type LabCluster, startLabCluster, whyNoCluster } from '@torpor/pods/testing';
import { type SandboxId, Torpor } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { type LabServer, startLabServer } from './lab-server.ts';
import { makeNamespace, NAMESPACE, podVariables } from './pod-subject.ts';

const why = whyNoCluster();
const ask = { what: 'answer', signal: new AbortController().signal };
const ACME = 'acme-sandboxes';
const runtime = 'agent-sandbox';
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

interface Listed {
  readonly items: readonly {
    readonly metadata: {
      readonly name: string;
      readonly labels?: Readonly<Record<string, string>>;
      readonly ownerReferences?: readonly { readonly kind: string }[];
    };
    readonly status?: { readonly readyReplicas?: number };
  }[];
}

/** The controllers of agent-sandbox, the garbage collector and the kubelet are real here. */
describe.skipIf(why !== null)(`warm pools and namespaces${why === null ? '' : `: ${why}`}`, () => {
  let cluster: LabCluster;
  let server: LabServer;
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  const start = async () => {
    server = await startLabServer(dataDir.path, {
      variables: {
        ...podVariables(cluster),
        TORPOR_KUBERNETES_WARM_POOL: '1',
        TORPOR_KUBERNETES_ORG_NAMESPACES: JSON.stringify({ acme: ACME }),
      },
      settings: ['engine.reconcileEveryMs=1s', 'engine.collectEveryMs=1s'],
    });
  };

  beforeAll(async () => {
    cluster = await startLabCluster();
    await makeNamespace(cluster);
    await makeNamespace(cluster, ACME);
    dataDir = await makeDataDir();
    await start();
  });
  afterAll(async () => {
    await server?.stop();
    await cluster?.stop();
    await dataDir?.remove();
  });

  const list = (kind: string, namespace = NAMESPACE) => {
    const groups: Record<string, string> = {
      pods: '/api/v1',
      secrets: '/api/v1',
      persistentvolumeclaims: '/api/v1',
      sandboxes: '/apis/agents.x-k8s.io/v1beta1',
    };
    const group = groups[kind] ?? '/apis/extensions.agents.x-k8s.io/v1beta1';
    return cluster.admin.get<Listed>(`${group}/namespaces/${namespace}/${kind}`, ask);
  };
  const names = async (kind: string, namespace?: string) =>
    (await list(kind, namespace)).items.map(({ metadata }) => metadata.name);
  const poolIsFull = (namespace = NAMESPACE) =>
    expect
      .poll(async () => (await list('sandboxwarmpools', namespace)).items[0]?.status?.readyReplicas, {
        timeout: 120_000,
      })
      .toBe(1);
  const sandboxOf = async (id: SandboxId, namespace?: string) =>
    (await list('sandboxes', namespace)).items.find(
      ({ metadata }) => metadata.labels?.['torpor.dev/sandbox'] === id.slice(4),
    );

  it('give a pod that waits to a sandbox, which keeps it when the claim is gone, and its files over a pause', async () => {
    await poolIsFull();
    const [waiting] = await names('sandboxes');
    const { sandboxes } = server.torpor;
    const { id } = await sandboxes.create({ runtime, env: { NAME: 'value' } });
    const made = await sandboxOf(id);
    expect(made?.metadata.name).toBe(waiting);
    expect(made?.metadata.ownerReferences).toBeUndefined();
    await expect.poll(() => names('sandboxclaims'), { timeout: 10_000 }).toEqual([]);
    expect((await sandboxes.exec(id, 'echo kept > file; echo $NAME')).stdout).toBe('value\n');
    // Time for the garbage collector and for the controllers, which must leave it alone now.
    await poolIsFull();
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    expect((await sandboxes.exec(id, 'cat file')).stdout).toBe('kept\n');
    expect((await sandboxes.pause(id)).sandbox.state).toBe('paused');
    await sandboxes.resume(id);
    expect((await sandboxes.exec(id, 'cat file')).stdout).toBe('kept\n');
    await sandboxes.kill(id);
    await expect.poll(() => sandboxOf(id), { timeout: 60_000 }).toBeUndefined();
  });

  it('have a Sandbox made for a claim when the pool is empty', async () => {
    await poolIsFull();
    const { sandboxes } = server.torpor;
    const made = await Promise.all([1, 2, 3].map(() => sandboxes.create({ runtime })));
    for (const { id } of made) {
      expect((await sandboxes.exec(id, 'echo here')).stdout).toBe('here\n');
      await sandboxes.kill(id);
    }
    await expect.poll(() => names('sandboxclaims'), { timeout: 10_000 }).toEqual([]);
  });

  it('keep an organisation in a namespace of its own, also for a server that is started again', async () => {
    await server.torpor.orgs.create({ name: 'acme' });
    const { key } = await server.torpor.keys.create({ name: 'test' }, { orgId: 'acme' });
    const acme = () => new Torpor({ url: server.url, apiKey: key });
    await poolIsFull(ACME);
    const pod = (await acme().sandboxes.create({ runtime: 'kubernetes' })).id;
    const volume = (await acme().sandboxes.create({ runtime })).id;
    const shared = (await server.torpor.sandboxes.create({ runtime: 'kubernetes' })).id;
    const podNames = async (namespace: string) => (await names('pods', namespace)).join();
    expect(await podNames(ACME)).toContain(pod.slice(4));
    expect(await podNames(ACME)).not.toContain(shared.slice(4));
    expect(await podNames(NAMESPACE)).toContain(shared.slice(4));
    expect(await sandboxOf(volume, ACME)).toBeDefined();
    await acme().sandboxes.exec(volume, 'echo kept > file');
    await acme().sandboxes.pause(volume);
    await server.stop();
    await start();
    expect((await acme().sandboxes.exec(pod, 'echo here')).stdout).toBe('here\n');
    await acme().sandboxes.resume(volume);
    expect((await acme().sandboxes.exec(volume, 'cat file')).stdout).toBe('kept\n');
    for (const id of [pod, volume]) await acme().sandboxes.kill(id);
    await server.torpor.sandboxes.kill(shared);
    for (const namespace of [NAMESPACE, ACME]) {
      // The pool with its key, what waits in it, and nothing else.
      await expect
        .poll(async () => [await names('sandboxes', namespace), (await names('secrets', namespace)).length], {
          timeout: 120_000,
        })
        .toEqual([[expect.stringContaining('torpor-')], 1]);
    }
  });
});
