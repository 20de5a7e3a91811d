/** The Kubernetes runtimes on the lab cluster, as the contract suite needs them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type Instance, type Runtime, type SealedCheckpoint, systemClock } from '@torpor/engine';
import {
  listedInstances,
  type Program,
  type RuntimeUnderTest,
  unhurried,
  VirtualStore,
} from '@torpor/engine/testing';
import type { AgentClient } from '@torpor/envd';
import { agentClient, objectName, readPodSettings } from '@torpor/pods';
import { AGENT_IMAGE, eventually, type LabCluster, PLAIN_IMAGE, STORAGE_CLASS } from '@torpor/pods/testing';
import { agentSandboxRuntime } from '@torpor/runtime-agent-sandbox';
import { kubernetesRuntime } from '@torpor/runtime-kubernetes';
import { DEFAULT_RUNTIME_SETTINGS, type RuntimeSettings } from '@torpor/runtime-shared';

export const NAMESPACE = 'sandboxes';
const ask = { what: 'answer', signal: unhurried };

export type Which = 'kubernetes' | 'agent-sandbox';

export function podVariables({ kubeconfig }: Pick<LabCluster, 'kubeconfig'>): Record<string, string> {
  return {
    TORPOR_KUBERNETES_CONFIG: kubeconfig,
    TORPOR_KUBERNETES_NAMESPACE: NAMESPACE,
    TORPOR_KUBERNETES_IMAGE: PLAIN_IMAGE,
    TORPOR_KUBERNETES_AGENT_IMAGE: AGENT_IMAGE,
    TORPOR_KUBERNETES_STORAGE_CLASS: STORAGE_CLASS,
    TORPOR_KUBERNETES_MEMORY_MB: '256',
  };
}

export async function makeNamespace({ admin }: LabCluster, name = NAMESPACE): Promise<void> {
  const body = { apiVersion: 'v1', kind: 'Namespace', metadata: { name } };
  await admin.create('/api/v1/namespaces', { ...ask, body });
  await eventually('the default service account', () =>
    admin.get(`/api/v1/namespaces/${name}/serviceaccounts/default`, ask),
  );
}

function openRuntime(
  which: Which,
  cluster: LabCluster,
  dataDir: string,
  settings: RuntimeSettings = DEFAULT_RUNTIME_SETTINGS,
) {
  const podSettings = readPodSettings(podVariables(cluster));
  const options = { dataDir, podSettings, settings, clock: systemClock, report: () => {} };
  return which === 'kubernetes' ? kubernetesRuntime(options) : agentSandboxRuntime(options);
}

export async function podSubject(which: Which, cluster: LabCluster): Promise<RuntimeUnderTest> {
  const dataDir = mkdtempSync(join(tmpdir(), 'torpor-pods-'));
  const runtime = await openRuntime(which, cluster, dataDir);
  const opened: { close(): Promise<void> }[] = [runtime];
  const store = new VirtualStore();
  const { admin } = cluster;
  const sandboxes = `/apis/agents.x-k8s.io/v1beta1/namespaces/${NAMESPACE}/sandboxes`;
  const objectOf = async (instance: Instance) => {
    if (which === 'kubernetes') return objectName(instance);
    const { sandboxId, generation } = instance;
    const labelSelector = `torpor.dev/sandbox=${sandboxId.slice(4)},torpor.dev/generation=${generation}`;
    const { items } = await admin.get<{ items: { metadata: { name: string } }[] }>(sandboxes, {
      ...ask,
      query: { labelSelector },
    });
    return items[0]?.metadata.name ?? '';
  };
  const podOf = async (instance: Instance) =>
    `/api/v1/namespaces/${NAMESPACE}/pods/${await objectOf(instance)}`;
  const removed = async (path: string) => {
    await admin
      .remove(path, { ...ask, body: { gracePeriodSeconds: 0, propagationPolicy: 'Foreground' } })
      .catch(() => {});
    await eventually(`${path} is gone`, async () => {
      const found = await admin.get(path, ask).catch(() => undefined);
      if (found !== undefined) throw new Error('it is there');
    });
  };
  return {
    runtime,
    store,
    program: programOf(runtime),
    kill: async (instance) => {
      const pod = await podOf(instance);
      await run(runtime, instance, 'kill -9 -1').catch(() => {});
      await eventually('the pod ended', async () => {
        const { status } = await admin.get<{ status: { phase: string } }>(pod, ask);
        if (status.phase === 'Running') throw new Error('it runs');
      });
    },
    wipe: async (instance) => {
      const name = await objectOf(instance);
      await removed(which === 'kubernetes' ? await podOf(instance) : `${sandboxes}/${name}`);
    },
    damages: which === 'kubernetes' ? [] : ['missing'],
    damage: ({ needs }: SealedCheckpoint) => removed(`${sandboxes}/${needs['sandbox']}`),
    reopen: async () => {
      const later = await openRuntime(which, cluster, dataDir);
      opened.push(later);
      return later;
    },
    dispose: async () => {
      for (const instance of await listedInstances(runtime)) await runtime.destroy(instance, unhurried);
      const left = await listedInstances(runtime);
      for (const one of opened) await one.close();
      rmSync(dataDir, { recursive: true, force: true });
      if (left.length > 0) throw new Error(`${left.length} instances are left.`);
    },
  };
}

/** Runs a shell command in the instance and resolves with its output. */
async function run(runtime: Runtime, instance: Instance, command: string): Promise<string> {
  return withAgent(runtime, instance, async (agent) => {
    let output = '';
    const process = { cmd: '/bin/sh', args: ['-c', command], envs: {} };
    for await (const { event } of agent.process.start({ process, stdin: false })) {
      if (event?.event.case !== 'data' || event.event.value.output.value === undefined) continue;
      output += Buffer.from(event.event.value.output.value).toString('utf8');
    }
    return output;
  });
}

async function withAgent<T>(
  runtime: Runtime,
  instance: Instance,
  work: (agent: AgentClient) => Promise<T>,
): Promise<T> {
  const { address, token } = await runtime.agent(instance, unhurried);
  const agent = agentClient(address, token);
  try {
    return await work(agent);
  } finally {
    agent.close();
  }
}

function programOf(runtime: Runtime): Program {
  return {
    write: (instance, path, content) =>
      withAgent(runtime, instance, (agent) => agent.files.write(path, content)).then(
        () => true,
        () => false,
      ),
    read: (instance, path) =>
      withAgent(runtime, instance, async (agent) => text(await agent.files.read(path))).catch(
        () => undefined,
      ),
    remove: async (instance, path) => void (await run(runtime, instance, `rm -f ${path}`)),
    listen: async (instance, port) => {
      await run(runtime, instance, `mkdir -p /tmp/www && httpd -p 127.0.0.1:${port} -h /tmp/www`);
    },
  };
}
