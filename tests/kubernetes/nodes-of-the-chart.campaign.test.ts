import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  type LabCluster,
  STORAGE_CLASS,
  startLabCluster,
  whyNoCluster,
  whyNoLab,
} from '@torpor/pods/testing';
import type { SandboxId, Torpor } from '@torpor/sdk';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type InstalledChart, installChart, isReady, type ServerPod, SYSTEM } from './installed-chart.ts';
import { writeServerImage } from './server-image.ts';

const MACHINE = '/var/lib/torpor';
const BASE = `${MACHINE}/base/current/root`;
const postgres = inject('postgresUrl');
const why =
  whyNoCluster() ??
  whyNoLab(['helm']) ??
  (await whyNoGvisor()) ??
  (existsSync(BASE) ? null : 'there is no root of `base`') ??
  (postgres === null ? 'PostgreSQL is not installed' : null);
const execute = promisify(execFile);
const kubectl = ['/usr/bin/kubectl', '/usr/local/bin/kubectl'].find(existsSync);
const ask = { what: 'answer', signal: new AbortController().signal };
vi.setConfig({ testTimeout: 900_000, hookTimeout: 900_000 });

/** Counts its requests, in memory alone. */
const COUNTER = {
  name: 'counter',
  command: `node -e 'let n = 0; require("node:http").createServer((q, r) => r.end(String(++n))).listen(3000)'`,
  port: 3000,
};

const NODES = {
  controlPlane: { enabled: false },
  nodes: {
    enabled: true,
    replicas: 2,
    storageClass: STORAGE_CLASS,
    memoryMb: 1024,
    drainSeconds: 180,
    resources: { requests: { cpu: '50m', memory: '256Mi' }, limits: { memory: '3Gi' } },
    // The lab has no mirror of Debian, so the nodes get the root of `base` and the runsc that this machine has made.
    extraVolumes: [{ name: 'machine', hostPath: { path: MACHINE } }],
    extraVolumeMounts: ['base', 'runsc'].map((subPath) => ({
      name: 'machine',
      mountPath: `${MACHINE}/${subPath}`,
      subPath,
      readOnly: true,
    })),
  },
  settings: { 'engine.nodeLeaseMs': '30s', 'engine.nodeStopMs': '5s' },
};

/** Privileged pods that run gVisor themselves, on two machines of the lab. */
describe.skipIf(why !== null)(`the nodes of the chart${why === null ? '' : `: ${why}`}`, () => {
  const directory = mkdtempSync(join(tmpdir(), 'torpor-chart-nodes-'));
  let cluster: LabCluster;
  let chart: InstalledChart;

  beforeAll(async () => {
    if (postgres === null) return;
    cluster = await startLabCluster({ nodes: 2, agentSandbox: false });
    for (const name of ['node1', 'node2']) await label(name);
    const archive = join(directory, 'server.tar');
    const programs = ['ip', 'nft', 'tini'].map((name) =>
      realpathSync(execFileSync('which', [name], { encoding: 'utf8' }).trim()),
    );
    await writeServerImage({ archive, base: realpathSync(BASE), programs });
    cluster.importImage(archive);
    chart = await installChart(cluster, postgres, NODES);
    await chart.untilReady(2);
  });
  afterAll(async () => {
    await cluster?.stop();
    await chart?.dispose();
    rmSync(directory, { recursive: true, force: true });
  });

  const label = (name: string) =>
    cluster.admin.patch(`/api/v1/nodes/${name}`, {
      ...ask,
      body: { metadata: { labels: { 'torpor.dev/node': 'true' } } },
    });
  const readyPods = async () => (await chart.pods()).filter(isReady);
  /** `kubectl drain`, or what it does: no new pods on the machine, and an eviction of each pod until it is accepted. */
  const drain = async ({ metadata: { name }, spec: { nodeName } }: ServerPod) => {
    if (kubectl !== undefined) {
      const flags = ['--kubeconfig', cluster.kubeconfig, '--delete-emptydir-data', '--timeout=300s'];
      console.log((await execute(kubectl, ['drain', nodeName, ...flags])).stdout);
      return;
    }
    await cluster.admin.patch(`/api/v1/nodes/${nodeName}`, {
      ...ask,
      body: { spec: { unschedulable: true } },
    });
    await cluster.admin.create(`/api/v1/namespaces/${SYSTEM}/pods/${name}/eviction`, {
      ...ask,
      body: { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name, namespace: SYSTEM } },
    });
  };
  const count = async (client: Torpor, id: SandboxId) =>
    Number(await (await client.sandboxes.fetch(id, 3000, '/')).text());

  it('run gVisor in privileged pods', async () => {
    const [pod] = await readyPods();
    const client = await chart.clientOf(pod as ServerPod);
    expect((await client.runtimes()).map(({ name, capabilities: { pause } }) => [name, pause])).toEqual([
      ['gvisor', 'memory'],
    ]);
    const { id } = await client.sandboxes.create({ services: [COUNTER], resources: { memoryMb: 256 } });
    expect(await count(client, id)).toBeGreaterThan(0);
    await client.sandboxes.pause(id);
    await client.sandboxes.resume(id);
    expect((await client.sandboxes.exec(id, 'dmesg | head -1; uname -a')).stdout).toContain('gVisor');
    await client.sandboxes.kill(id);
  });

  it('are drained with the memory of their sandboxes, and no request fails', async () => {
    const [first, second] = await readyPods();
    if (first === undefined || second === undefined) throw new Error('There are no two servers.');
    const client = await chart.clientOf(first);
    const { sandboxes } = client;
    const ids: SandboxId[] = [];
    for (let n = 0; n < 3; n++)
      ids.push((await sandboxes.create({ services: [COUNTER], resources: { memoryMb: 256 } })).id);
    const homes = new Set((await client.nodes.list()).map(({ name }) => name));
    expect(homes).toEqual(new Set(['torpor-node-0', 'torpor-node-1']));
    const last = new Map<SandboxId, number>();
    const failures: unknown[] = [];
    let isOver = false;
    const asking = (async () => {
      for (let n = 0; !isOver; n++) {
        const ready = await readyPods();
        const pod = ready[n % Math.max(1, ready.length)];
        const id = ids[n % ids.length] as SandboxId;
        if (pod === undefined) continue;
        const now = await count(await chart.clientOf(pod), id).catch(
          (thrown: unknown) => void failures.push(thrown),
        );
        if (now === undefined) continue;
        // A counter that starts again has lost its memory.
        if (now <= (last.get(id) ?? 0)) failures.push(`${id} counts ${now} after ${last.get(id)}`);
        last.set(id, now);
      }
    })();
    await expect.poll(() => last.size, { timeout: 60_000 }).toBe(ids.length);
    const before = new Map(last);
    await drain(first);
    await expect
      .poll(async () => (await chart.pods()).find(({ metadata }) => metadata.uid === first.metadata.uid), {
        timeout: 300_000,
        interval: 1_000,
      })
      .toBeUndefined();
    isOver = true;
    await asking;
    expect(failures).toEqual([]);
    const there = await chart.clientOf(second);
    for (const id of ids) {
      expect(await count(there, id)).toBeGreaterThan(before.get(id) ?? 0);
      expect((await there.sandboxes.get(id)).state).toBe('running');
      await there.sandboxes.kill(id);
    }
  });
});
