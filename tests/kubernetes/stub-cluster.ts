/**
 * A cluster in memory in which thousands of sandboxes are made within minutes: every pod is one stub on the loopback, which
 * answers to the set-up of an agent and to nothing else. The rows that a server writes about these sandboxes are real.
 */
import { createServer } from 'node:http';
import { AGENT_PORT } from '@torpor/envd';
import { FakeApi, type FakeObject } from '@torpor/pods/testing';

const GROUP = '/apis/agents.x-k8s.io';

export interface StubCluster extends AsyncDisposable {
  readonly kubeconfig: string;
}

export async function startStubCluster(namespace: string): Promise<StubCluster> {
  const core = `/api/v1/namespaces/${namespace}`;
  const sandboxes = `${GROUP}/v1beta1/namespaces/${namespace}/sandboxes`;
  const api = new FakeApi();
  const kubeconfig = await api.start();
  api.put(GROUP, { metadata: { name: 'group' }, versions: [{ version: 'v1beta1' }] });
  const podAt = (name: string) => `${core}/pods/${name}`;
  const runPod = (path: string) => api.merge(path, { status: { phase: 'Running', podIP: '127.0.0.1' } });

  /** As the controller of agent-sandbox. */
  const control = (path: string, { metadata, spec, status }: FakeObject) => {
    const { name, generation: observedGeneration } = metadata;
    const [judged] = (status?.['conditions'] ?? []) as { observedGeneration?: number }[];
    if (judged?.observedGeneration === observedGeneration) return;
    const isSuspended = spec?.['operatingMode'] === 'Suspended';
    if (isSuspended) api.remove(podAt(name));
    else if (!api.objects.has(podAt(name))) api.put(podAt(name), { metadata: { name } });
    const claim = `${core}/persistentvolumeclaims/home-${name}`;
    if (!api.objects.has(claim))
      api.put(claim, { metadata: { name: `home-${name}` }, status: { phase: 'Bound' } });
    const said = (type: string, is: boolean) => ({ type, status: is ? 'True' : 'False', observedGeneration });
    api.merge(path, {
      status: { conditions: [said('Ready', !isSuspended), said('Suspended', isSuspended)] },
    });
  };
  api.onChange = (path, object) => {
    if (path.startsWith(`${core}/pods/`) && object.status === undefined) runPod(path);
    if (path.startsWith(`${sandboxes}/`)) control(path, object);
  };

  const agents = createServer((request, response) => {
    request.resume();
    if (request.url === '/health') response.writeHead(204).end();
    else if (request.url === '/init')
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    else response.writeHead(404).end();
  });
  agents.listen(AGENT_PORT, '127.0.0.1');
  await new Promise((resolve) => agents.once('listening', resolve));
  return {
    kubeconfig,
    async [Symbol.asyncDispose]() {
      agents.closeAllConnections();
      await new Promise((resolve) => agents.close(resolve));
      await api.stop();
    },
  };
}
