import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type SealedCheckpoint, systemClock } from '@torpor/engine';
import { failureOf, newInstance, nextOf, unhurried } from '@torpor/engine/testing';
import { objectName, readPodSettings } from '@torpor/pods';
import { type LabApiServer, startLabApiServer, whyNoLab } from '@torpor/pods/testing';
import { kubernetesRuntime } from '@torpor/runtime-kubernetes';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSandboxRuntime } from './open-agent-sandbox-runtime.ts';

const why = whyNoLab(['etcd', 'kube-apiserver']);
const NAMESPACE = 'torpor-sandboxes';
const SPEC = {
  org: 'default',
  env: { A: '1' },
  services: [],
  network: {},
  resources: { memoryMb: 256, cpus: 0.5, diskMb: 100 },
};
const TEMPLATE: SealedCheckpoint = {
  id: `ckpt_${'0'.repeat(20)}`,
  parts: { files: true, memory: false },
  needs: { image: 'app:1' },
  path: null,
};

/** Nothing runs here: a real API server checks and stores the objects, and the test does what a controller would. */
describe.skipIf(why !== null)(`a real API server${why === null ? '' : `: ${why}`}`, () => {
  let server: LabApiServer;
  let directory: string;
  beforeAll(async () => {
    server = await startLabApiServer(NAMESPACE);
    directory = mkdtempSync(join(tmpdir(), 'torpor-real-api-'));
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  const options = (podVariables: Record<string, string> = {}) => ({
    dataDir: directory,
    podSettings: readPodSettings({
      TORPOR_KUBERNETES_CONFIG: server.kubeconfig,
      TORPOR_KUBERNETES_AGENT_IMAGE: 'agent:1',
      TORPOR_KUBERNETES_REACH: 'pod-ip',
      TORPOR_KUBERNETES_RUNTIME_CLASS: '',
      TORPOR_KUBERNETES_NODE_SELECTOR: '{"disk":"ssd"}',
      TORPOR_KUBERNETES_TOLERATIONS: '[{"key":"sandboxes","operator":"Exists"}]',
      TORPOR_KUBERNETES_PULL_SECRETS: 'one,two',
      TORPOR_KUBERNETES_STORAGE_CLASS: 'fast',
      ...podVariables,
    }),
    settings: { ...DEFAULT_RUNTIME_SETTINGS, agentSandboxMs: 800 },
    clock: systemClock,
    report: () => {},
  });
  const ask = { what: 'answer', signal: unhurried };
  const pods = `/api/v1/namespaces/${NAMESPACE}/pods`;
  const sandboxes = `/apis/agents.x-k8s.io/v1beta1/namespaces/${NAMESPACE}/sandboxes`;
  interface Stored {
    readonly metadata: { readonly generation: number; readonly uid: string };
    readonly spec: Record<string, unknown>;
  }

  it('accepts the pod of a sandbox, tells a missing one apart from a missing answer, and deletes all of it', async () => {
    const runtime = await kubernetesRuntime(options());
    const instance = newInstance();
    const stop = new AbortController();
    const starting = runtime
      .start(instance, TEMPLATE, 'files', SPEC, stop.signal)
      .catch((error: unknown) => error);
    const at = `${pods}/${objectName(instance)}`;
    await expect
      .poll(() => server.admin.get(at, ask).catch(() => undefined), { timeout: 5_000 })
      .toBeDefined();
    const { spec } = await server.admin.get<Stored>(at, ask);
    expect(spec).toMatchObject({
      nodeSelector: { disk: 'ssd' },
      imagePullSecrets: [{ name: 'one' }, { name: 'two' }],
      containers: [{ resources: { limits: { memory: '256Mi', cpu: '500m', 'ephemeral-storage': '100Mi' } } }],
    });
    expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'unknown' });
    expect(await runtime.observe(newInstance(), unhurried)).toMatchObject({ is: 'gone', files: false });
    stop.abort();
    await starting;
    const listed: unknown[] = [];
    for await (const one of runtime.list(unhurried)) listed.push(one);
    expect(listed).toEqual([instance]);
    await runtime.destroy(instance, unhurried);
    expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone' });
    const left = await server.admin.get<{ items: unknown[] }>(`/api/v1/namespaces/${NAMESPACE}/secrets`, ask);
    expect(left.items).toEqual([]);
    await runtime.close();
  });

  it('accepts the Sandbox, counts its generations, and leaves a suspension to the controller (R69, R70)', async () => {
    const runtime = await agentSandboxRuntime(options());
    const instance = newInstance();
    const stop = new AbortController();
    const starting = runtime
      .start(instance, TEMPLATE, 'files', SPEC, stop.signal)
      .catch((error: unknown) => error);
    const name = objectName(instance);
    const at = `${sandboxes}/${name}`;
    await expect
      .poll(() => server.admin.get(at, ask).catch(() => undefined), { timeout: 5_000 })
      .toBeDefined();
    stop.abort();
    await starting;
    const made = await server.admin.get<Stored>(at, ask);
    expect(made.spec).toMatchObject({
      operatingMode: 'Running',
      shutdownPolicy: 'Retain',
      volumeClaimTemplates: [
        { spec: { storageClassName: 'fast', resources: { requests: { storage: '100Mi' } } } },
      ],
    });
    // As if its start had been completed by the controller.
    const metadata = { annotations: { 'torpor.dev/state': 'running', 'torpor.dev/pod': 'x' } };
    await server.admin.patch(at, { ...ask, body: { metadata } });
    const claim = {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `home-${name}` },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '100Mi' } } },
    };
    await server.admin.create(`/api/v1/namespaces/${NAMESPACE}/persistentvolumeclaims`, {
      ...ask,
      body: claim,
    });
    expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: true });
    const staging = { checkpointId: `ckpt_${'3'.repeat(20)}`, path: '/nowhere' } as const;
    const recovering = failureOf(runtime.recoverFiles(instance, staging, unhurried));
    expect(await recovering).toMatchObject({ code: 'timeout' });
    const suspended = await server.admin.get<Stored>(at, ask);
    expect(suspended.spec['operatingMode']).toBe('Suspended');
    expect(suspended.metadata.generation).toBe(made.metadata.generation + 1);
    const condition = (observedGeneration: number) => ({
      conditions: ['Ready', 'Suspended'].map((type) => ({
        ...{ type, status: type === 'Ready' ? 'False' : 'True', reason: 'PodTerminated', message: '' },
        ...{ observedGeneration, lastTransitionTime: '2026-01-01T00:00:00Z' },
      })),
    });
    const status = (generation: number) =>
      server.admin.patch(`${at}/status`, { ...ask, body: { status: condition(generation) } });
    await status(made.metadata.generation);
    expect(await failureOf(runtime.recoverFiles(instance, staging, unhurried))).toMatchObject({
      code: 'timeout',
    });
    await status(suspended.metadata.generation);
    const { needs, external } = await runtime.recoverFiles(instance, staging, unhurried);
    expect(needs).toMatchObject({ sandbox: name, uid: made.metadata.uid, image: 'app:1' });
    expect(external?.replayable).toBe(false);
    await runtime.destroy(nextOf(instance), unhurried);
    expect((await server.admin.get<Stored>(at, ask)).metadata.uid).toBe(made.metadata.uid);
    await runtime.close();
  });

  it('accepts the warm pool and its claim, and keeps the claim until the Sandbox belongs to the instance', async () => {
    const runtime = await agentSandboxRuntime(options({ TORPOR_KUBERNETES_WARM_POOL: '2' }));
    const extensions = `/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/${NAMESPACE}`;
    interface Listed {
      readonly items: readonly { readonly metadata: { readonly name: string }; readonly spec: object }[];
    }
    const listOf = (kind: string) => server.admin.get<Listed>(`${extensions}/${kind}`, ask);
    await expect
      .poll(async () => (await listOf('sandboxwarmpools')).items.length, { timeout: 10_000 })
      .toBe(1);
    const [template] = (await listOf('sandboxtemplates')).items;
    const [pool] = (await listOf('sandboxwarmpools')).items;
    expect(pool?.spec).toMatchObject({
      replicas: 2,
      sandboxTemplateRef: { name: template?.metadata.name },
      updateStrategy: { type: 'Recreate' },
    });
    expect(template?.spec).toMatchObject({
      networkPolicyManagement: 'Unmanaged',
      volumeClaimTemplates: [{ spec: { storageClassName: 'fast' } }],
    });

    // As the controller of claims: the Sandbox gets the claim for its owner.
    const instance = newInstance();
    const image = 'docker.io/library/node:24-bookworm';
    const stop = new AbortController();
    const starting = runtime
      .start(instance, { ...TEMPLATE, needs: { image } }, 'files', { ...SPEC, resources: {} }, stop.signal)
      .catch((error: unknown) => error);
    const at = `${extensions}/sandboxclaims/${objectName(instance)}`;
    interface Claim {
      readonly metadata: { readonly uid: string; readonly deletionTimestamp?: string };
    }
    const claimOf = () => server.admin.get<Claim>(at, ask).catch(() => undefined);
    await expect.poll(claimOf, { timeout: 5_000 }).toBeDefined();
    const { uid = '' } = (await claimOf())?.metadata ?? {};
    const owner = {
      apiVersion: 'extensions.agents.x-k8s.io/v1beta1',
      kind: 'SandboxClaim',
      uid,
      controller: true,
    };
    const sandbox = {
      apiVersion: 'agents.x-k8s.io/v1beta1',
      kind: 'Sandbox',
      metadata: { name: 'waiting', ownerReferences: [{ ...owner, name: objectName(instance) }] },
      spec:
        template?.spec === undefined
          ? {}
          : { podTemplate: (template.spec as { podTemplate: object }).podTemplate },
    };
    await server.admin.create(sandboxes, { ...ask, body: sandbox });
    const status = { conditions: [], sandbox: { name: 'waiting' } };
    await server.admin.patch(`${at}/status`, { ...ask, body: { status } });
    await expect
      .poll(async () => (await claimOf())?.metadata.deletionTimestamp, { timeout: 5_000 })
      .toBeDefined();
    // Its pod never runs. The start is given up, and everything that it has taken is removed.
    stop.abort();
    await starting;
    const listed: unknown[] = [];
    for await (const one of runtime.list(unhurried)) listed.push(one);
    expect(listed).toEqual([instance]);
    // No garbage collector runs here, so the deletion of the Sandbox stays under way.
    expect(await failureOf(runtime.destroy(instance, unhurried))).toMatchObject({ code: 'timeout' });
    expect(await claimOf()).toBeUndefined();
    const { metadata } = await server.admin.get<Claim>(`${sandboxes}/waiting`, ask);
    expect(metadata.deletionTimestamp).toBeDefined();
    await runtime.close();
  });
});
