import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Instance, systemClock } from '@torpor/engine';
import { failureOf, NO_SPEC, newInstance, unhurried } from '@torpor/engine/testing';
import { objectName, readPodSettings } from '@torpor/pods';
import { FakeApi } from '@torpor/pods/testing';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { KubernetesRuntime } from './kubernetes-runtime.ts';
import { kubernetesRuntime } from './open-kubernetes-runtime.ts';

const TEMPLATE = {
  id: `ckpt_${'0'.repeat(20)}`,
  parts: { files: true, memory: false },
  needs: { image: 'app:1' },
  path: null,
} as const;
const SHARED = 'torpor-sandboxes';

describe('organisations with a namespace of their own', () => {
  let api: FakeApi;
  let kubeconfig: string;
  let directory: string;
  const opened: KubernetesRuntime[] = [];

  beforeEach(async () => {
    api = new FakeApi();
    kubeconfig = await api.start();
    directory = mkdtempSync(join(tmpdir(), 'torpor-k8s-'));
  });
  afterEach(async () => {
    for (const runtime of opened.splice(0)) await runtime.close();
    await api.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  const open = async (orgNamespaces: object) => {
    const env = {
      TORPOR_KUBERNETES_CONFIG: kubeconfig,
      TORPOR_KUBERNETES_AGENT_IMAGE: 'agent:1',
      TORPOR_KUBERNETES_REACH: 'pod-ip',
      TORPOR_KUBERNETES_ORG_NAMESPACES: JSON.stringify(orgNamespaces),
    };
    const runtime = await kubernetesRuntime({
      dataDir: directory,
      podSettings: readPodSettings(env),
      settings: { ...DEFAULT_RUNTIME_SETTINGS, kubernetesRequestMs: 1_000 },
      clock: systemClock,
      report: () => {},
    });
    opened.push(runtime);
    return runtime;
  };
  const podAt = (namespace: string, instance: Instance) =>
    `/api/v1/namespaces/${namespace}/pods/${objectName(instance)}`;

  /** A pod that runs, as a server leaves it that stops then. */
  const started = async (runtime: KubernetesRuntime, org: string, namespace: string) => {
    const instance = newInstance();
    const stop = new AbortController();
    const spec = { ...NO_SPEC, org };
    const starting = runtime.start(instance, TEMPLATE, 'files', spec, stop.signal).catch(() => {});
    await expect.poll(() => api.objects.has(podAt(namespace, instance)), { timeout: 10_000 }).toBe(true);
    stop.abort();
    await starting;
    api.merge(podAt(namespace, instance), { status: { phase: 'Running', podIP: '127.0.0.1' } });
    return instance;
  };

  it('have their pods and credentials there, and all other organisations share one', async () => {
    const runtime = await open({ acme: 'acme-sandboxes' });
    const [acme, other] = [
      await started(runtime, 'acme', 'acme-sandboxes'),
      await started(runtime, 'default', SHARED),
    ];
    const paths = [...api.objects.keys()].filter((path) => path.includes(objectName(acme)));
    expect(paths.map((path) => path.split('/')[4])).toEqual(['acme-sandboxes', 'acme-sandboxes']);
    const listed: Instance[] = [];
    for await (const one of runtime.list(unhurried)) listed.push(one);
    expect(listed).toEqual([other, acme]);
    for (const one of [acme, other]) await runtime.destroy(one, unhurried);
    expect([...api.objects.keys()]).toEqual([]);
  });

  it('are found by a later server, also when new sandboxes go to another namespace', async () => {
    const instance = await started(await open({}), 'acme', SHARED);
    const later = await open({ acme: 'acme-sandboxes' });
    expect(await later.observe(instance, unhurried)).toEqual({ is: 'running' });
    api.remove(podAt(SHARED, instance));
    expect(await later.observe(instance, unhurried)).toMatchObject({ is: 'gone' });
  });

  it('are unknown, and not gone, while one of the namespaces cannot be asked', async () => {
    const runtime = await open({ acme: 'acme-sandboxes' });
    const instance = newInstance();
    api.faultOf = (_, path) => (path.includes('acme-sandboxes') ? 403 : undefined);
    expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'unknown' });
    await expect(runtime.destroy(instance, unhurried)).rejects.toThrow();
    api.faultOf = () => undefined;
    expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone' });
  });

  it('must be organisations, and their namespaces names of Kubernetes', async () => {
    for (const wrong of [{ 'No Org': 'a' }, { acme: 'No Namespace' }, 'acme']) {
      expect(await failureOf(open(wrong as object))).toMatchObject({
        code: 'invalid_request',
        message: expect.stringContaining('TORPOR_KUBERNETES_ORG_NAMESPACES'),
      });
    }
  });
});
