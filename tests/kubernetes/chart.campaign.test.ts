import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LabCluster, startLabCluster, whyNoCluster, whyNoLab } from '@torpor/pods/testing';
import type { SandboxId, Torpor } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import {
  CONTROL_PLANE,
  type InstalledChart,
  installChart,
  isReady,
  type ServerPod,
  SYSTEM,
} from './installed-chart.ts';
import { writeServerImage } from './server-image.ts';

const postgres = inject('postgresUrl');
const why =
  whyNoCluster() ?? whyNoLab(['helm']) ?? (postgres === null ? 'PostgreSQL is not installed' : null);
const ask = { what: 'answer', signal: new AbortController().signal };
const SANDBOXES = 'torpor-sandboxes';
vi.setConfig({ testTimeout: 300_000, hookTimeout: 600_000 });

/** The servers run in the cluster, as the chart installs them, and reach the sandboxes by the addresses of their pods. */
describe.skipIf(why !== null)(`the control plane of the chart${why === null ? '' : `: ${why}`}`, () => {
  const directory = mkdtempSync(join(tmpdir(), 'torpor-chart-lab-'));
  let cluster: LabCluster;
  let chart: InstalledChart;
  let servers: readonly ServerPod[] = [];
  let first: Torpor;
  let second: Torpor;

  const connect = async () => {
    servers = await chart.untilReady(2);
    const [a, b] = servers;
    if (a === undefined || b === undefined) throw new Error('There are no two servers.');
    [first, second] = [await chart.clientOf(a), await chart.clientOf(b)];
  };

  beforeAll(async () => {
    if (postgres === null) return;
    cluster = await startLabCluster();
    const archive = join(directory, 'server.tar');
    await writeServerImage({ archive });
    cluster.importImage(archive);
    const settings = {
      'engine.nodeLeaseMs': '6s',
      'engine.nodeStopMs': '1s',
      'engine.reconcileEveryMs': '2s',
    };
    chart = await installChart(cluster, postgres, { ...CONTROL_PLANE, settings });
    await connect();
  });
  afterAll(async () => {
    await cluster?.stop();
    await chart?.dispose();
    rmSync(directory, { recursive: true, force: true });
  });

  const podsOf = async (id: SandboxId) => {
    const query = { labelSelector: `torpor.dev/sandbox=${id.slice(4)}` };
    const path = `/api/v1/namespaces/${SANDBOXES}/pods`;
    return (await cluster.admin.get<{ items: ServerPod[] }>(path, { ...ask, query })).items;
  };
  const uidOf = async (id: SandboxId) => (await podsOf(id))[0]?.metadata.uid;
  const remove = (pod: ServerPod, gracePeriodSeconds?: number) =>
    cluster.admin.remove(`/api/v1/namespaces/${SYSTEM}/pods/${pod.metadata.name}`, {
      ...ask,
      body: gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds },
    });
  /** Asks servers that are ready until `end` is called; returns what failed. */
  const asking = (id: SandboxId) => {
    let isOver = false;
    const failures: unknown[] = [];
    let answers = 0;
    const running = (async () => {
      while (!isOver) {
        const ready = (await chart.pods()).filter(isReady);
        const pod = ready[answers % Math.max(1, ready.length)];
        if (pod === undefined) continue;
        const client = await chart.clientOf(pod);
        await client.sandboxes.exec(id, 'echo here').then(
          () => answers++,
          (thrown: unknown) => failures.push(thrown),
        );
      }
    })();
    return async () => {
      isOver = true;
      await running;
      return { failures, answers };
    };
  };

  it('has two servers, each a node, that say what their runtimes can do', async () => {
    const nodes = await first.nodes.list();
    expect(nodes.map(({ name, state }) => [name, state])).toEqual([
      ['torpor-0', 'alive'],
      ['torpor-1', 'alive'],
    ]);
    expect((await second.runtimes()).map(({ name }) => name)).toEqual(['kubernetes', 'agent-sandbox']);
  });

  it('answers from every server, whichever has the sandbox, by the address of its pod', async () => {
    const services = [
      {
        name: 'web',
        command: 'mkdir -p www; echo hello > www/index.html; exec httpd -f -p 127.0.0.1:3000 -h www',
        port: 3000,
      },
    ];
    const { id } = await first.sandboxes.create({ services });
    for (const client of [first, second]) {
      expect(await client.sandboxes.exec(id, 'id -u')).toMatchObject({ exitCode: 0, stdout: '1000\n' });
      expect(await (await client.sandboxes.fetch(id, 3000, '/')).text()).toBe('hello\n');
    }
    await second.sandboxes.kill(id);
    expect(await podsOf(id)).toEqual([]);
  });

  it('wakes a sandbox with its files on another server than the one where it was paused', async () => {
    const { id } = await first.sandboxes.create({ runtime: 'agent-sandbox' });
    await first.sandboxes.exec(id, 'echo kept > file');
    expect((await first.sandboxes.pause(id)).sandbox.state).toBe('paused');
    await second.sandboxes.resume(id);
    expect((await second.sandboxes.exec(id, 'cat file')).stdout).toBe('kept\n');
    await first.sandboxes.kill(id);
  });

  it('gives the sandboxes of a server that stops to another one, and no request fails', async () => {
    const ids: SandboxId[] = [];
    for (let n = 0; n < 4; n++) ids.push((await (n % 2 === 0 ? first : second).sandboxes.create({})).id);
    const before = await Promise.all(ids.map(uidOf));
    const end = asking(ids[0] as SandboxId);
    const [stopped] = servers;
    if (stopped === undefined) throw new Error('There is no server.');
    await remove(stopped);
    await expect
      .poll(
        async () => (await chart.pods()).find(({ metadata }) => metadata.name === 'torpor-0')?.metadata.uid,
        {
          timeout: 120_000,
        },
      )
      .not.toBe(stopped.metadata.uid);
    await connect();
    const { failures, answers } = await end();
    expect(failures).toEqual([]);
    expect(answers).toBeGreaterThan(0);
    expect(await Promise.all(ids.map(uidOf))).toEqual(before);
    for (const id of ids) {
      expect((await second.sandboxes.exec(id, 'echo here')).stdout).toBe('here\n');
      await first.sandboxes.kill(id);
    }
  });

  it('loses no sandbox when a server is killed, and finds them all from another one', async () => {
    const ids: SandboxId[] = [];
    for (let n = 0; n < 4; n++) ids.push((await (n % 2 === 0 ? first : second).sandboxes.create({})).id);
    const before = await Promise.all(ids.map(uidOf));
    const [killed] = servers;
    if (killed === undefined) throw new Error('There is no server.');
    await remove(killed, 0);
    await connect();
    for (const id of ids) {
      await expect
        .poll(() => second.sandboxes.exec(id, 'echo here').then(({ stdout }) => stdout, String), {
          timeout: 60_000,
        })
        .toBe('here\n');
    }
    expect(await Promise.all(ids.map(uidOf))).toEqual(before);
    for (const id of ids) await first.sandboxes.kill(id);
  });

  it('is upgraded one server after the other while a sandbox runs and answers', async () => {
    const { id } = await first.sandboxes.create({});
    const before = await uidOf(id);
    const names = new Set(servers.map(({ metadata }) => metadata.uid));
    const end = asking(id);
    await chart.upgrade({ controlPlane: { podAnnotations: { upgraded: 'yes' } } });
    await expect
      .poll(
        async () => (await chart.pods()).filter((pod) => isReady(pod) && !names.has(pod.metadata.uid)).length,
        {
          timeout: 240_000,
          interval: 1_000,
        },
      )
      .toBe(2);
    expect((await end()).failures).toEqual([]);
    await connect();
    expect(await uidOf(id)).toBe(before);
    await first.sandboxes.kill(id);
  });

  it('may do nothing outside of the namespace of the sandboxes', async () => {
    const may = async (verb: string, resource: string, namespace: string, group = '') => {
      const { status } = await cluster.admin.create<{ status: { allowed: boolean } }>(
        '/apis/authorization.k8s.io/v1/subjectaccessreviews',
        {
          ...ask,
          body: {
            apiVersion: 'authorization.k8s.io/v1',
            kind: 'SubjectAccessReview',
            spec: {
              user: `system:serviceaccount:${SYSTEM}:torpor`,
              resourceAttributes: { verb, resource, namespace, group },
            },
          },
        },
      );
      return status.allowed;
    };
    expect(await may('create', 'pods', SANDBOXES)).toBe(true);
    expect(await may('patch', 'sandboxes', SANDBOXES, 'agents.x-k8s.io')).toBe(true);
    expect(await may('create', 'pods', SYSTEM)).toBe(false);
    expect(await may('get', 'secrets', SYSTEM)).toBe(false);
    expect(await may('get', 'secrets', 'kube-system')).toBe(false);
    expect(await may('create', 'pods/exec', SANDBOXES)).toBe(false);
    expect(await may('list', 'nodes', '')).toBe(false);
  });

  it('leaves nothing of its sandboxes, and nothing of itself but the namespaces and the volumes', async () => {
    const count = async (path: string) =>
      (await cluster.admin.get<{ items: unknown[] }>(path, ask)).items.length;
    const core = `/api/v1/namespaces/${SANDBOXES}`;
    for (const path of [
      `${core}/pods`,
      `${core}/secrets`,
      `${core}/persistentvolumeclaims`,
      `/apis/agents.x-k8s.io/v1beta1/namespaces/${SANDBOXES}/sandboxes`,
    ])
      await expect.poll(() => count(path), { timeout: 120_000, interval: 1_000 }).toBe(0);
    await chart.uninstall();
    await expect.poll(() => count(`/api/v1/namespaces/${SYSTEM}/pods`), { timeout: 180_000 }).toBe(0);
    expect(await count(`/apis/rbac.authorization.k8s.io/v1/namespaces/${SANDBOXES}/roles`)).toBe(0);
  });
});
