import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { failureOf, newInstance, unhurried } from '@torpor/engine/testing';
import { labelsOf, objectName, readPodSettings } from '@torpor/pods';
import { FakeApi, type Fault } from '@torpor/pods/testing';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { KubernetesRuntime } from './kubernetes-runtime.ts';
import { kubernetesRuntime } from './open-kubernetes-runtime.ts';

const PODS = '/api/v1/namespaces/torpor-sandboxes/pods';
const SECRETS = '/api/v1/namespaces/torpor-sandboxes/secrets';
const SPEC = { org: 'default', env: {}, services: [], network: {}, resources: {} };
const TEMPLATE = {
  id: `ckpt_${'0'.repeat(20)}`,
  parts: { files: true, memory: false },
  needs: { image: 'app:1' },
  path: null,
} as const;

/** Every fault that says nothing about the object. */
const SILENT: readonly Fault[] = [401, 403, 409, 410, 429, 500, 503, 'proxy', 'drop', 'hang'];

describe('pods behind an API server that fails', () => {
  let api: FakeApi;
  let runtime: KubernetesRuntime;
  let directory: string;
  let home: string;
  const instance = newInstance();
  const pod = `${PODS}/${objectName(instance)}`;
  const secretAt = `${SECRETS}/${objectName(instance)}`;

  beforeEach(async () => {
    api = new FakeApi();
    directory = mkdtempSync(join(tmpdir(), 'torpor-k8s-'));
    const env = {
      TORPOR_KUBERNETES_CONFIG: await api.start(),
      TORPOR_KUBERNETES_AGENT_IMAGE: 'agent:1',
      TORPOR_KUBERNETES_REACH: 'pod-ip',
    };
    runtime = await kubernetesRuntime({
      dataDir: directory,
      podSettings: readPodSettings(env),
      settings: { ...DEFAULT_RUNTIME_SETTINGS, kubernetesRequestMs: 1_000, kubernetesBlockedMs: 50 },
      clock: systemClock,
      report: () => {},
    });
    await runtime.start(instance, TEMPLATE, 'files', SPEC, AbortSignal.abort()).catch(() => {});
    home = '';
    await expect.poll(() => api.watchCount).toBe(1);
  });
  afterEach(async () => {
    await runtime.close();
    await api.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  /** A pod as a running server has made it. */
  const running = async (status: object = { phase: 'Running', podIP: '127.0.0.1' }) => {
    const stop = new AbortController();
    const starting = runtime.start(instance, TEMPLATE, 'files', SPEC, stop.signal).catch(() => {});
    await expect
      .poll(() => api.objects.get(secretAt)?.metadata, { timeout: 10_000 })
      .toHaveProperty('ownerReferences');
    stop.abort();
    await starting;
    home = api.objects.get(pod)?.metadata.labels?.['torpor.dev/home'] ?? '';
    api.merge(pod, { status });
  };

  it('are unknown, and never gone, whatever it answers but that there is none', async () => {
    await running();
    for (const fault of SILENT) {
      api.faultOf = (method) => (method === 'GET' ? fault : undefined);
      expect(await runtime.observe(instance, unhurried), String(fault)).toMatchObject({ is: 'unknown' });
    }
    api.faultOf = () => undefined;
    expect(await runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    api.remove(pod);
    expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: false });
  });

  it('are neither listed as absent nor called destroyed while it does not say so', async () => {
    await running();
    const listing = async () => {
      for await (const _ of runtime.list(unhurried)) return;
    };
    for (const fault of SILENT) {
      api.faultOf = () => fault;
      await expect(listing(), String(fault)).rejects.toThrow();
      await expect(runtime.destroy(instance, unhurried), String(fault)).rejects.toThrow();
    }
    api.faultOf = () => undefined;
    await runtime.destroy(instance, unhurried);
    expect([...api.objects.keys()]).toEqual([]);
  });

  it('are unknown while they end or their node is silent, with words for each', async () => {
    await running();
    api.merge(pod, { metadata: { deletionTimestamp: 'now' } });
    expect(await runtime.observe(instance, unhurried)).toMatchObject({
      is: 'unknown',
      why: expect.stringContaining('deleted'),
    });
    api.objects.delete(pod);
    api.put(pod, { metadata: { name: objectName(instance), labels: labelsOf(home, instance) } });
    const conditions = [
      { type: 'Ready', status: 'False' },
      { type: 'ContainersReady', status: 'True' },
    ];
    api.merge(pod, { status: { phase: 'Running', podIP: '127.0.0.1', conditions } });
    expect(await runtime.observe(instance, unhurried)).toMatchObject({
      is: 'unknown',
      why: expect.stringContaining('node'),
    });
  });

  it('that were evicted are gone, with the words of the cluster', async () => {
    await running({ phase: 'Failed', reason: 'Evicted', message: 'The node was low on memory.' });
    expect(await runtime.observe(instance, unhurried)).toMatchObject({
      is: 'gone',
      files: false,
      why: expect.stringContaining('low on memory'),
    });
  });

  it.each([
    [
      'capacity',
      {
        conditions: [
          { type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/1 nodes' },
        ],
      },
    ],
    [
      'conflict',
      {
        initContainerStatuses: [
          { name: 'i', state: { waiting: { reason: 'ImagePullBackOff', message: 'no' } } },
        ],
      },
    ],
  ])('that cannot start fail with %s and leave nothing behind', async (code, status) => {
    api.onChange = (path, object) => {
      if (path === pod && object.status === undefined)
        api.merge(pod, { status: { phase: 'Pending', ...status } });
    };
    const failure = await failureOf(runtime.start(instance, TEMPLATE, 'files', SPEC, unhurried));
    expect(failure).toMatchObject({ code, sandboxId: instance.sandboxId });
    await runtime.destroy(instance, unhurried);
    expect([...api.objects.keys()]).toEqual([]);
  });

  it('whose answers are lost are made once, and found again', async () => {
    api.faultOf = (method) => (method === 'POST' ? 'lose' : undefined);
    await expect(runtime.start(instance, TEMPLATE, 'files', SPEC, unhurried)).rejects.toThrow();
    // The Secret was made, and only the answer was lost: the instance is listed, so that the reconciler removes it.
    expect([...api.objects.keys()]).toEqual([`${SECRETS}/${objectName(instance)}`]);
    const listed: unknown[] = [];
    for await (const one of runtime.list(unhurried)) listed.push(one);
    expect(listed).toEqual([instance]);
  });

  it('are reported as ended by the watch, also after it was dropped', async () => {
    const ended: unknown[] = [];
    runtime.onEnded((one) => ended.push(one));
    await running();
    api.dropWatches();
    await expect.poll(() => api.watchCount).toBe(0);
    await expect.poll(() => api.watchCount).toBe(1);
    api.remove(pod);
    await expect.poll(() => ended).toContainEqual(instance);
  });

  it('have no service account, no root, no privileges, and the credential only in a Secret', async () => {
    await running();
    const text = JSON.stringify(api.objects.get(pod));
    const spec = api.objects.get(pod)?.spec as Record<string, { securityContext: object }[]>;
    expect(spec).toMatchObject({
      automountServiceAccountToken: false,
      restartPolicy: 'Never',
      securityContext: { runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
    });
    for (const container of [...(spec['initContainers'] ?? []), ...(spec['containers'] ?? [])]) {
      expect(container.securityContext).toMatchObject({
        allowPrivilegeEscalation: false,
        runAsNonRoot: true,
        capabilities: { drop: ['ALL'] },
      });
    }
    const secret = api.objects.get(`${SECRETS}/${objectName(instance)}`);
    const { credential: token = '' } = (secret?.['stringData'] ?? {}) as Record<string, string>;
    expect(token).toHaveLength(64);
    expect(text).not.toContain(token);
    expect(secret?.metadata).toMatchObject({
      ownerReferences: [{ kind: 'Pod', uid: api.objects.get(pod)?.metadata.uid }],
    });
  });

  it('cannot be frozen or captured, and nothing is asked of the cluster (R67)', async () => {
    await running();
    const before = api.requests.length;
    expect((await failureOf(runtime.freeze(instance))).code).toBe('capability_unsupported');
    expect((await failureOf(runtime.capture(instance))).code).toBe('capability_unsupported');
    expect(api.requests.length).toBe(before);
  });
});
