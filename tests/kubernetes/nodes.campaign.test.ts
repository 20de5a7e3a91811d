import { type LabCluster, startLabCluster, whyNoCluster } from '@torpor/pods/testing';
import type { SandboxId } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { type LabServer, startLabServer } from './lab-server.ts';
import { makeNamespace, NAMESPACE, podVariables } from './pod-subject.ts';

const why = whyNoCluster();
const ask = { what: 'answer', signal: new AbortController().signal };
const MACHINE = 'node2';
vi.setConfig({ testTimeout: 600_000, hookTimeout: 300_000 });

/** A cluster of two machines. The sandboxes are on the second one, which is lost. */
describe.skipIf(why !== null)(`a lost machine of the cluster${why === null ? '' : `: ${why}`}`, () => {
  let cluster: LabCluster;
  let server: LabServer;
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;

  beforeAll(async () => {
    cluster = await startLabCluster({ nodes: 2 });
    await makeNamespace(cluster);
    dataDir = await makeDataDir();
    server = await startLabServer(dataDir.path, {
      variables: podVariables(cluster),
      settings: ['engine.reconcileEveryMs=1s', 'runtimes.kubernetesRequestMs=5s'],
    });
  });
  afterAll(async () => {
    for await (const { id } of server.torpor.sandboxes.list())
      await server.torpor.sandboxes.kill(id).catch(() => {});
    await server?.stop();
    await cluster?.stop();
    await dataDir?.remove();
  });

  const schedulable = (name: string, isOpen: boolean) =>
    cluster.admin.patch(`/api/v1/nodes/${name}`, { ...ask, body: { spec: { unschedulable: !isOpen } } });
  const viewOf = (id: SandboxId) => server.torpor.sandboxes.get(id);
  const machineOf = async (id: SandboxId) => {
    const query = { labelSelector: `torpor.dev/sandbox=${id.slice(4)}` };
    const path = `/api/v1/namespaces/${NAMESPACE}/pods`;
    const { items } = await cluster.admin.get<{ items: { spec: { nodeName: string } }[] }>(path, {
      ...ask,
      query,
    });
    return items[0]?.spec.nodeName;
  };
  /** One sandbox of each runtime on the second machine. */
  const twoSandboxes = async () => {
    await schedulable('node1', false);
    const { sandboxes } = server.torpor;
    const pod = (await sandboxes.create({ runtime: 'kubernetes' })).id;
    const volume = (await sandboxes.create({ runtime: 'agent-sandbox' })).id;
    await sandboxes.exec(volume, 'echo kept > file');
    await schedulable('node1', true);
    for (const id of [pod, volume]) expect(await machineOf(id)).toBe(MACHINE);
    return { pod, volume };
  };

  it('that is silent for a minute makes its sandboxes unknown, and no more, until it answers again', async () => {
    const { pod, volume } = await twoSandboxes();
    cluster.signal(`kubelet-${MACHINE}`, 'SIGSTOP');
    for (const id of [pod, volume])
      await expect.poll(async () => (await viewOf(id)).evidence, { timeout: 90_000 }).toBe('unknown');
    const until = Date.now() + 60_000;
    while (Date.now() < until) {
      for (const id of [pod, volume]) expect((await viewOf(id)).state).toBe('running');
      await new Promise((resolve) => setTimeout(resolve, 2_000));
    }
    cluster.signal(`kubelet-${MACHINE}`, 'SIGCONT');
    for (const id of [pod, volume]) {
      await expect
        .poll(() => server.torpor.sandboxes.exec(id, 'echo here').then(({ stdout }) => stdout, String), {
          timeout: 90_000,
        })
        .toBe('here\n');
      await server.torpor.sandboxes.kill(id);
    }
  });

  it('that is removed from the cluster loses pods, and a Sandbox goes on with its files on another machine', async () => {
    const { pod, volume } = await twoSandboxes();
    cluster.signal(`kubelet-${MACHINE}`, 'SIGSTOP');
    await cluster.admin.remove(`/api/v1/nodes/${MACHINE}`, ask);
    await expect
      .poll(async () => (await viewOf(pod)).state, { timeout: 240_000, interval: 1_000 })
      .toBe('lost');
    expect((await viewOf(pod)).reason).toBeTruthy();
    await expect
      .poll(async () => (await viewOf(volume)).state, { timeout: 240_000, interval: 1_000 })
      .toBe('paused');
    expect((await viewOf(volume)).lost).toEqual(['processes', 'connections']);
    await server.torpor.sandboxes.resume(volume);
    expect((await server.torpor.sandboxes.exec(volume, 'cat file')).stdout).toBe('kept\n');
    expect(await machineOf(volume)).toBe('node1');
    await server.torpor.sandboxes.kill(volume);
    cluster.signal(`kubelet-${MACHINE}`, 'SIGCONT');
  });
});
