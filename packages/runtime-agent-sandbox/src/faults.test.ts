import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type SealedCheckpoint, systemClock } from '@torpor/engine';
import { failureOf, newInstance, nextOf, unhurried } from '@torpor/engine/testing';
import { instanceOf, labelsOf, objectName, readPodSettings } from '@torpor/pods';
import { FakeApi, type FakeObject, type Fault } from '@torpor/pods/testing';
import type { CheckpointId } from '@torpor/protocol';
import { DEFAULT_RUNTIME_SETTINGS } from '@torpor/runtime-shared';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AgentSandboxRuntime } from './agent-sandbox-runtime.ts';
import { agentSandboxRuntime } from './open-agent-sandbox-runtime.ts';

const SPEC = { org: 'default', env: {}, services: [], network: {}, resources: {} };
const SILENT: readonly Fault[] = [401, 403, 409, 410, 429, 500, 503, 'proxy', 'drop', 'hang'];
const CORE = '/api/v1/namespaces/torpor-sandboxes';
const CHECKPOINT: CheckpointId = `ckpt_${'1'.repeat(20)}`;
const NEXT: CheckpointId = `ckpt_${'2'.repeat(20)}`;
const staging = (checkpointId: CheckpointId) => ({ checkpointId, path: '/nowhere' });

describe.each(['v1beta1', 'v1alpha1'] as const)(
  'Sandboxes of %s behind an API server that fails',
  (version) => {
    const instance = newInstance();
    const name = objectName(instance);
    const group = `/apis/agents.x-k8s.io/${version}/namespaces/torpor-sandboxes/sandboxes`;
    const [object, pod, claim] = [
      `${group}/${name}`,
      `${CORE}/pods/${name}`,
      `${CORE}/persistentvolumeclaims/home-${name}`,
    ];
    let api: FakeApi;
    let runtime: AgentSandboxRuntime;
    let directory: string;
    /** What the controller does with a changed Sandbox. */
    let controller: (sandbox: FakeObject) => void;

    beforeEach(async () => {
      api = new FakeApi();
      directory = mkdtempSync(join(tmpdir(), 'torpor-asb-'));
      const env = {
        TORPOR_KUBERNETES_CONFIG: await api.start(),
        TORPOR_KUBERNETES_AGENT_IMAGE: 'agent:1',
        TORPOR_KUBERNETES_REACH: 'pod-ip',
      };
      runtime = await agentSandboxRuntime({
        dataDir: directory,
        podSettings: readPodSettings(env),
        settings: { ...DEFAULT_RUNTIME_SETTINGS, kubernetesRequestMs: 1_000, agentSandboxMs: 400 },
        clock: systemClock,
        report: () => {},
      });
      api.put('/apis/agents.x-k8s.io', { metadata: { name: 'group' }, versions: [{ version }] });
      controller = obey;
      api.onChange = (path, changed) => {
        if (path.startsWith(`${group}/`) && changed.metadata.generation !== judged(changed))
          controller(changed);
      };
      await makeRunning();
    });
    afterEach(async () => {
      await runtime.close();
      await api.stop();
      rmSync(directory, { recursive: true, force: true });
    });

    const isSuspended = ({ spec }: FakeObject) =>
      spec?.['operatingMode'] === 'Suspended' || spec?.['replicas'] === 0;
    const judged = ({ status }: FakeObject) =>
      (status?.['conditions'] as { observedGeneration?: number }[] | undefined)?.[0]?.observedGeneration;
    const conditions = (suspended: boolean, observedGeneration: number | undefined, reason?: string) => [
      { type: 'Ready', status: suspended ? 'False' : 'True', reason: reason ?? 'said', observedGeneration },
      { type: 'Suspended', status: suspended ? 'True' : 'False', observedGeneration },
    ];

    /** As the real controller: ends the pod of a suspended Sandbox and says so. */
    function obey(sandbox: FakeObject): void {
      const at = `${group}/${sandbox.metadata.name}`;
      if (isSuspended(sandbox)) api.remove(`${CORE}/pods/${sandbox.metadata.name}`);
      else api.put(`${CORE}/pods/${sandbox.metadata.name}`, runningPod(sandbox.metadata.name));
      api.merge(at, {
        status: { conditions: conditions(isSuspended(sandbox), sandbox.metadata.generation) },
      });
    }

    function runningPod(podName: string): FakeObject {
      return { metadata: { name: podName }, status: { phase: 'Running', podIP: '127.0.0.1' } };
    }

    /** As a start leaves it. */
    async function makeRunning(): Promise<void> {
      const stop = new AbortController();
      const starting = runtime.start(instance, template(), 'files', SPEC, stop.signal).catch(() => {});
      await expect.poll(() => api.objects.has(pod), { timeout: 10_000 }).toBe(true);
      stop.abort();
      await starting;
      api.put(claim, { metadata: { name: `home-${name}` }, status: { phase: 'Bound' } });
      const annotations = {
        'torpor.dev/state': 'running',
        'torpor.dev/pod': api.objects.get(pod)?.metadata.uid,
      };
      api.merge(object, { metadata: { annotations } });
      expect(await runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
    }

    function template(): SealedCheckpoint {
      return {
        id: `ckpt_${'0'.repeat(20)}`,
        parts: { files: true, memory: false },
        needs: { image: 'app:1' },
        path: null,
      };
    }

    async function captured(id = CHECKPOINT): Promise<SealedCheckpoint> {
      const { parts, needs } = await runtime.capture(instance, 'files', staging(id), unhurried);
      return { id, parts, needs, path: null };
    }

    it('are unknown, and never gone, whatever it answers but that there is none', async () => {
      for (const fault of SILENT) {
        api.faultOf = (method) => (method === 'GET' ? fault : undefined);
        expect(await runtime.observe(instance, unhurried), String(fault)).toMatchObject({ is: 'unknown' });
      }
      api.faultOf = () => undefined;
      expect(await runtime.observe(instance, unhurried)).toEqual({ is: 'running' });
      api.remove(object);
      expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: false });
    });

    it('are suspended by the field that this version knows, verified by conditions, and kept (R69, R82)', async () => {
      await runtime.freeze(instance, unhurried);
      expect(await runtime.observe(instance, unhurried)).toEqual({ is: 'frozen' });
      const { spec } = api.objects.get(object) ?? {};
      expect(version === 'v1beta1' ? spec?.['operatingMode'] : spec?.['replicas']).toBe(
        version === 'v1beta1' ? 'Suspended' : 0,
      );
      expect(Object.hasOwn(spec ?? {}, version === 'v1beta1' ? 'replicas' : 'operatingMode')).toBe(false);
      const checkpoint = await captured();
      await runtime.destroy(instance, unhurried);
      expect([api.objects.has(object), api.objects.has(claim), api.objects.has(pod)]).toEqual([
        true,
        true,
        false,
      ]);
      await runtime.checkUsable(checkpoint, unhurried);
      const listed: unknown[] = [];
      for await (const one of runtime.list(unhurried)) listed.push(one);
      expect(listed).toEqual([]);
      expect(api.requests.filter((one) => one.startsWith('DELETE') && one.includes('/sandboxes/'))).toEqual(
        [],
      );
      await runtime.discard(checkpoint, unhurried);
      expect(api.objects.has(object)).toBe(false);
    });

    it('are not called suspended by a field that we wrote, nor by a condition of an earlier generation (R70)', async () => {
      controller = () => {};
      expect(await failureOf(runtime.freeze(instance, unhurried))).toMatchObject({ code: 'timeout' });
      expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'unknown' });
      const { generation = 0 } = api.objects.get(object)?.metadata ?? {};
      api.merge(object, { status: { conditions: conditions(true, generation - 1) } });
      api.remove(pod);
      expect(await failureOf(captured())).toMatchObject({ code: 'conflict' });
      api.merge(object, { status: { conditions: conditions(true, generation) } });
      expect((await captured()).parts).toEqual({ files: true, memory: false });
    });

    it('are not called suspended while their pod still exists', async () => {
      controller = (sandbox) =>
        void api.merge(object, {
          status: { conditions: conditions(isSuspended(sandbox), sandbox.metadata.generation) },
        });
      expect(await failureOf(runtime.freeze(instance, unhurried))).toMatchObject({ code: 'timeout' });
    });

    it('make no checkpoint without a volume (R78)', async () => {
      await runtime.freeze(instance, unhurried);
      api.remove(claim);
      expect(await failureOf(captured())).toMatchObject({ code: 'checkpoint_missing' });
    });

    it('that resume by nothing but our own field fail within the deadline, untouched (R70)', async () => {
      await runtime.freeze(instance, unhurried);
      const checkpoint = await captured();
      await runtime.destroy(instance, unhurried);
      controller = () => {};
      const next = nextOf(instance);
      expect(await failureOf(runtime.start(next, checkpoint, 'files', SPEC, unhurried))).toMatchObject({
        code: 'timeout',
      });
      expect(await runtime.observe(next, unhurried)).toMatchObject({ is: 'gone', untouched: true });
      controller = obey;
      await runtime.destroy(next, unhurried);
      expect(api.objects.has(object)).toBe(true);
      await runtime.checkUsable(checkpoint, unhurried);
    });

    it('that were resumed go with their instance, unless the start may have to be repeated from the checkpoint', async () => {
      await runtime.freeze(instance, unhurried);
      const checkpoint = await captured();
      await runtime.destroy(instance, unhurried, checkpoint.id);
      const next = nextOf(instance);
      const resumed = () => {
        const labels = labelsOf(api.objects.get(object)?.metadata.labels?.['torpor.dev/home'] ?? '', next);
        api.merge(object, { metadata: { labels, annotations: { 'torpor.dev/state': 'running' } } });
      };
      resumed();
      await runtime.destroy(next, unhurried, checkpoint.id);
      expect([api.objects.has(object), api.objects.has(claim)]).toEqual([true, true]);
      // The engine does not discard a checkpoint that a start has used up: the end of the instance is the end of the volume.
      resumed();
      await runtime.destroy(next, unhurried);
      expect(api.objects.has(object)).toBe(false);
    });

    it('that were deleted, with or without their volume, are missing (R76)', async () => {
      await runtime.freeze(instance, unhurried);
      const checkpoint = await captured();
      await runtime.destroy(instance, unhurried);
      api.faultOf = (method) => (method === 'GET' ? 503 : undefined);
      expect(await failureOf(runtime.checkUsable(checkpoint, unhurried))).toMatchObject({
        code: 'checkpoint_unreadable',
      });
      api.faultOf = () => undefined;
      api.remove(claim);
      expect(await failureOf(runtime.checkUsable(checkpoint, unhurried))).toMatchObject({
        code: 'checkpoint_missing',
      });
      api.remove(object);
      const next = nextOf(instance);
      expect(await failureOf(runtime.start(next, checkpoint, 'files', SPEC, unhurried))).toMatchObject({
        code: 'checkpoint_missing',
      });
      await runtime.destroy(next, unhurried);
      expect([...api.objects.keys()].filter((key) => key.includes('secrets'))).toEqual([]);
    });

    it.each([
      ['SandboxExpired', 'expired'],
      ['PodFailed', 'failed'],
    ])('that say %s are gone with their files', async (reason, words) => {
      const { generation } = api.objects.get(object)?.metadata ?? {};
      api.merge(object, { status: { conditions: conditions(true, generation, reason) } });
      api.remove(pod);
      expect(await runtime.observe(instance, unhurried)).toMatchObject({
        is: 'gone',
        files: true,
        why: expect.stringContaining(words),
      });
    });

    it('whose pod the controller replaced are gone with their files, which are recovered', async () => {
      api.remove(pod);
      api.put(pod, runningPod(name));
      expect(await runtime.observe(instance, unhurried)).toMatchObject({ is: 'gone', files: true });
      const { parts } = await runtime.recoverFiles(instance, staging(NEXT), unhurried);
      expect(parts.files).toBe(true);
      await runtime.destroy(instance, unhurried);
      expect([api.objects.has(object), api.objects.has(pod)]).toEqual([true, false]);
    });

    it('are found in the namespace that the checkpoint names, and not concluded missing without it', async () => {
      await runtime.freeze(instance, unhurried);
      const { needs, ...checkpoint } = await captured();
      expect(needs['namespace']).toBe('torpor-sandboxes');
      await runtime.destroy(instance, unhurried);
      const elsewhere = { ...checkpoint, needs: { ...needs, namespace: 'removed-from-the-settings' } };
      expect(await failureOf(runtime.checkUsable(elsewhere, unhurried))).toMatchObject({
        code: 'checkpoint_unreadable',
      });
      // As an earlier version recorded it.
      const { namespace: _, ...before } = needs;
      await runtime.discard({ ...checkpoint, needs: before }, unhurried);
      expect(api.objects.has(object)).toBe(false);
    });

    it('in use by another instance are not started again', async () => {
      await runtime.freeze(instance, unhurried);
      const checkpoint = await captured();
      const labels = labelsOf(api.objects.get(object)?.metadata.labels?.['torpor.dev/home'] ?? '', instance);
      expect(instanceOf({ labels })).toEqual(instance);
      const failure = await failureOf(runtime.start(newInstance(), checkpoint, 'files', SPEC, unhurried));
      expect(failure).toMatchObject({ code: 'conflict' });
    });
  },
);

describe('a cluster without agent-sandbox', () => {
  it('is told apart from a Sandbox that is gone', async () => {
    const api = new FakeApi();
    const directory = mkdtempSync(join(tmpdir(), 'torpor-asb-'));
    const env = { TORPOR_KUBERNETES_CONFIG: await api.start(), TORPOR_KUBERNETES_AGENT_IMAGE: 'agent:1' };
    const runtime = await agentSandboxRuntime({
      dataDir: directory,
      podSettings: readPodSettings(env),
      settings: DEFAULT_RUNTIME_SETTINGS,
      clock: systemClock,
      report: () => {},
    });
    api.faultOf = (_, path) => (path.startsWith('/apis/') ? 'proxy' : undefined);
    expect(await runtime.observe(newInstance(), unhurried)).toMatchObject({
      is: 'unknown',
      why: expect.stringContaining('does not have agent-sandbox'),
    });
    await runtime.close();
    await api.stop();
    rmSync(directory, { recursive: true, force: true });
  });
});
