import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Instance, systemClock } from '@torpor/engine';
import { failureOf, NO_SPEC, newInstance, unhurried } from '@torpor/engine/testing';
import { objectName, poolCredential, readPodSettings } from '@torpor/pods';
import { FakeApi, type FakeObject } from '@torpor/pods/testing';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AgentSandboxRuntime } from './agent-sandbox-runtime.ts';
import { agentSandboxRuntime } from './open-agent-sandbox-runtime.ts';

const CLAIMS = '/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/torpor-sandboxes/sandboxclaims';
const TEMPLATE = {
  id: `ckpt_${'0'.repeat(20)}`,
  parts: { files: true, memory: false },
  needs: { image: 'docker.io/library/node:24-bookworm' },
  path: null,
} as const;

describe('a warm pool', () => {
  let api: FakeApi;
  let runtime: AgentSandboxRuntime;
  let directory: string;
  const instance = newInstance();
  const claim = `${CLAIMS}/${objectName(instance)}`;

  beforeEach(async () => {
    api = new FakeApi();
    directory = mkdtempSync(join(tmpdir(), 'torpor-pool-'));
    const env = {
      TORPOR_KUBERNETES_CONFIG: await api.start(),
      TORPOR_KUBERNETES_AGENT_IMAGE: 'agent:1',
      TORPOR_KUBERNETES_REACH: 'pod-ip',
      TORPOR_KUBERNETES_WARM_POOL: '3',
    };
    api.put('/apis/agents.x-k8s.io', { metadata: { name: 'group' }, versions: [{ version: 'v1beta1' }] });
    runtime = await agentSandboxRuntime({
      dataDir: directory,
      podSettings: readPodSettings(env),
      settings: { ...DEFAULT_RUNTIME_SETTINGS, kubernetesRequestMs: 1_000, agentSandboxMs: 300 },
      clock: systemClock,
      report: () => {},
    });
    await expect.poll(() => objectsOf('sandboxwarmpools')).toHaveLength(1);
  });
  afterEach(async () => {
    await runtime.close();
    await api.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  const objectsOf = (kind: string): FakeObject[] =>
    [...api.objects].filter(([path]) => path.includes(`/${kind}/`)).map(([, object]) => object);
  const start = (signal = unhurried) => runtime.start(instance, TEMPLATE, 'files', NO_SPEC, signal);
  const listed = async () => {
    const all: Instance[] = [];
    for await (const one of runtime.list(unhurried)) all.push(one);
    return all;
  };

  it('has pods that name no sandbox, and whose credential no other pod can derive', () => {
    const [template] = objectsOf('sandboxtemplates');
    const [pool] = objectsOf('sandboxwarmpools');
    const [secret] = objectsOf('secrets');
    expect(pool?.spec).toMatchObject({ replicas: 3, sandboxTemplateRef: { name: template?.metadata.name } });
    const text = JSON.stringify(template?.spec);
    expect(text).not.toContain('--sandbox-id');
    expect(text).toContain('--warm-up');
    const { spec } = (template?.spec?.['podTemplate'] ?? {}) as { spec?: Record<string, object[]> };
    expect(JSON.stringify(spec?.['initContainers'])).toContain('"fieldPath":"metadata.uid"');
    expect(JSON.stringify(spec?.['containers'])).not.toContain('POD_UID');
    const { credential = '' } = (secret?.['data'] ?? {}) as { credential?: string };
    const key = Buffer.from(credential, 'base64').toString();
    expect(key).toHaveLength(64);
    expect(text).not.toContain(key);
    expect(poolCredential(key, 'one')).not.toBe(poolCredential(key, 'another'));
  });

  it('leaves a claim whose answer was lost to be found and removed', async () => {
    api.faultOf = (method, path) => (method === 'POST' && path === CLAIMS ? 'lose' : undefined);
    await expect(start()).rejects.toThrow();
    api.faultOf = () => undefined;
    expect(api.objects.has(claim)).toBe(true);
    expect(await listed()).toEqual([instance]);
    await runtime.destroy(instance, unhurried);
    expect(api.objects.has(claim)).toBe(false);
    expect(await listed()).toEqual([]);
  });

  it('says what is wrong when the controller does not answer a claim', async () => {
    expect(await failureOf(start())).toMatchObject({
      code: 'timeout',
      hint: expect.stringContaining('--extensions'),
    });
    await runtime.destroy(instance, unhurried);
    expect(objectsOf('sandboxclaims')).toEqual([]);
  });

  it('keeps the claim until its Sandbox belongs to the instance', async () => {
    const name = 'waiting-1';
    const sandbox = `/apis/agents.x-k8s.io/v1beta1/namespaces/torpor-sandboxes/sandboxes/${name}`;
    const ownerReferences = [{ kind: 'SandboxClaim', uid: 'claim' }];
    api.put(sandbox, { metadata: { name, ownerReferences }, spec: { operatingMode: 'Running' } });
    api.onChange = (path, object) => {
      if (path === claim && object.status === undefined) api.merge(claim, { status: { sandbox: { name } } });
    };
    const stop = new AbortController();
    const starting = start(stop.signal).catch(() => {});
    await expect.poll(() => api.objects.get(claim)?.metadata.deletionTimestamp).toBeDefined();
    // Its pod never runs: the start is given up here, as by a server that dies.
    expect(api.objects.get(sandbox)?.metadata).toMatchObject({
      ownerReferences,
      labels: { 'torpor.dev/generation': '1' },
    });
    stop.abort();
    await starting;
    await runtime.destroy(instance, unhurried);
    expect([api.objects.has(claim), api.objects.has(sandbox)]).toEqual([false, false]);
  });
});
