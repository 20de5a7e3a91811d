import { noFaults } from '@torpor/engine';
import { type LabCluster, startLabCluster, whyNoCluster } from '@torpor/pods/testing';
import { type SandboxId, Torpor } from '@torpor/sdk';
import { openLog, type RunningServer, readConfig, startServer } from '@torpor/server';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { makeDataDir } from '../crash/torpor-process.ts';
import { makeNamespace, NAMESPACE, podVariables } from './pod-subject.ts';

const why = whyNoCluster();
const API_KEY = 'c0ffee42'.repeat(8);
const never = new AbortController().signal;
const ask = { what: 'answer', signal: never };
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

/** Answers with the message and what it finds on its disk, and writes it there. */
const PROGRAM = {
  command: 'read -r line; cat log 2>/dev/null; echo "$line" >> log; echo "answered $line"',
  mode: 'turn',
} as const;

/** The whole server on a real cluster: both Kubernetes runtimes and processes side by side. */
describe.skipIf(why !== null)(`a server with pods${why === null ? '' : `: ${why}`}`, () => {
  let cluster: LabCluster;
  let server: RunningServer;
  let torpor: Torpor;
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;

  beforeAll(async () => {
    cluster = await startLabCluster();
    await makeNamespace(cluster);
    for (const [name, value] of Object.entries(podVariables(cluster))) process.env[name] = value;
    dataDir = await makeDataDir();
    const argv = ['--port', '0', '--data-dir', dataDir.path, '--runtime', 'kubernetes,agent-sandbox,process'];
    const config = await readConfig(
      [
        ...argv,
        '--set',
        'engine.reconcileEveryMs=1s',
        '--set',
        'engine.collectEveryMs=1s',
        '--set',
        'runtimes.kubernetesRequestMs=2s',
      ],
      { TORPOR_API_KEY: API_KEY },
      dataDir.path,
    );
    server = await startServer(config, { log: openLog({ level: 'silent' }), faults: noFaults });
    torpor = new Torpor({ url: server.url, apiKey: API_KEY });
  });
  afterAll(async () => {
    for await (const { id } of torpor.sandboxes.list()) await torpor.sandboxes.kill(id).catch(() => {});
    await server?.stop();
    await cluster?.stop();
    await dataDir?.remove();
  });

  const podOf = async (id: SandboxId) => {
    const path = `/api/v1/namespaces/${NAMESPACE}/pods`;
    const query = { labelSelector: `torpor.dev/sandbox=${id.slice(4)}` };
    const { items } = await cluster.admin.get<{ items: { metadata: { name: string } }[] }>(path, {
      ...ask,
      query,
    });
    return `${path}/${items[0]?.metadata.name}`;
  };
  const deletePod = async (id: SandboxId) => {
    await cluster.admin.remove(await podOf(id), { ...ask, body: { gracePeriodSeconds: 0 } });
  };
  const stateOf = async (id: SandboxId) => (await torpor.sandboxes.get(id)).state;

  it('says what each of its runtimes can do', async () => {
    const all = await torpor.runtimes();
    expect(
      all.map(({ name, default: isDefault, capabilities: { pause } }) => [name, isDefault, pause]),
    ).toEqual([
      ['kubernetes', true, 'none'],
      ['agent-sandbox', false, 'files'],
      ['process', false, 'files'],
    ]);
  });

  it('runs commands, files and a service behind the gateway in a pod of an image without Node and C library', async () => {
    const { id } = await torpor.sandboxes.create({
      services: [
        {
          name: 'web',
          command: 'mkdir -p www; echo hello > www/index.html; exec httpd -f -p 127.0.0.1:3000 -h www',
          port: 3000,
        },
      ],
    });
    expect(await torpor.sandboxes.exec(id, 'id -u; echo $HOME; pwd')).toMatchObject({
      exitCode: 0,
      stdout: '1000\n/home/user\n/home/user\n',
    });
    expect(await (await torpor.sandboxes.fetch(id, 3000, '/')).text()).toBe('hello\n');
    await torpor.sandboxes.kill(id);
    await expect(cluster.admin.get(await podOf(id), ask)).rejects.toThrow();
  });

  it('refuses to pause a pod and writes nothing, and stops an idle one that says so (R67, R68)', async () => {
    const { id } = await torpor.sandboxes.create({ onIdle: 'stop', idleSeconds: 1 });
    await expect(torpor.sandboxes.pause(id)).rejects.toMatchObject({ code: 'capability_unsupported' });
    await expect.poll(() => stateOf(id), { timeout: 60_000 }).toBe('killed');
    expect((await torpor.sandboxes.get(id)).reason).toContain('idle');
  });

  it('answers a session whose pod was deleted from a new sandbox (R72, R75)', async () => {
    const session = await torpor.sessions.getOrSpawn('on-pods', { program: PROGRAM });
    expect((await session.send('one')).output).toBe('answered one\n');
    const before = session.view.sandboxId as SandboxId;
    await deletePod(before);
    expect((await session.send('two')).output).toBe('answered two\n');
    const { sandboxId } = (await torpor.sessions.getOrSpawn('on-pods', { program: PROGRAM })).view;
    expect(sandboxId).not.toBe(before);
    expect(await torpor.sandboxes.get(before)).toMatchObject({ state: 'lost' });
  });

  it('keeps the files of a conversation over suspend and resume of a Sandbox (R69, R71)', async () => {
    const sandbox = { runtime: 'agent-sandbox' };
    const session = await torpor.sessions.getOrSpawn('on-volumes', { program: PROGRAM, sandbox });
    expect((await session.send('one')).output).toBe('answered one\n');
    const id = session.view.sandboxId as SandboxId;
    expect((await torpor.sandboxes.pause(id)).sandbox.state).toBe('paused');
    expect((await session.send('two')).output).toBe('one\nanswered two\n');
    expect((await torpor.sandboxes.get(id)).state).toBe('running');
    // Its pod is deleted behind our back: the files are recovered, and the same sandbox goes on.
    await deletePod(id);
    await expect.poll(() => stateOf(id), { timeout: 60_000 }).toBe('paused');
    expect((await torpor.sandboxes.get(id)).lost).toEqual(['processes', 'connections']);
    expect((await session.send('three')).output).toBe('one\ntwo\nanswered three\n');
  });

  it('replaces a Sandbox that was deleted behind its back (R76)', async () => {
    const sandbox = { runtime: 'agent-sandbox' };
    const session = await torpor.sessions.getOrSpawn('deleted', { program: PROGRAM, sandbox });
    await session.send('one');
    const id = session.view.sandboxId as SandboxId;
    await torpor.sandboxes.pause(id);
    const path = `/apis/agents.x-k8s.io/v1beta1/namespaces/${NAMESPACE}/sandboxes`;
    const name = (await torpor.sandboxes.checkpoints(id)).items[0]?.location?.split('/').at(-1);
    await cluster.admin.remove(`${path}/${name}`, ask);
    expect((await session.send('two')).output).toBe('answered two\n');
  });

  it('calls its sandboxes unknown while the API server is down, and is in step again afterwards (R77)', async () => {
    const pod = (await torpor.sandboxes.create({})).id;
    const volume = (await torpor.sandboxes.create({ runtime: 'agent-sandbox' })).id;
    await cluster.restartApiServer(async () => {
      for (const id of [pod, volume]) {
        await expect
          .poll(async () => (await torpor.sandboxes.get(id)).evidence, { timeout: 60_000 })
          .toBe('unknown');
        expect(await stateOf(id)).toBe('running');
        await expect(torpor.sandboxes.kill(id)).rejects.toThrow();
      }
      const refused = torpor.sandboxes.create({}, { signal: AbortSignal.timeout(20_000) });
      await expect(refused).rejects.toThrow();
    });
    await expect.poll(() => stateOf(pod), { timeout: 60_000 }).toBe('killed');
    await expect.poll(() => stateOf(volume), { timeout: 60_000 }).toBe('killed');
  });

  it('leaves nothing behind in the cluster', async () => {
    for await (const { id } of torpor.sandboxes.list()) await torpor.sandboxes.kill(id).catch(() => {});
    const left = async () => {
      const counts = [];
      for (const path of ['api/v1', 'apis/agents.x-k8s.io/v1beta1'])
        for (const kind of path === 'api/v1'
          ? ['pods', 'secrets', 'persistentvolumeclaims']
          : ['sandboxes']) {
          const list = await cluster.admin.get<{ items: unknown[] }>(
            `/${path}/namespaces/${NAMESPACE}/${kind}`,
            ask,
          );
          counts.push([kind, list.items.length]);
        }
      return counts;
    };
    await expect
      .poll(left, { timeout: 120_000, interval: 1_000 })
      .toEqual(['pods', 'secrets', 'persistentvolumeclaims', 'sandboxes'].map((kind) => [kind, 0]));
  });
});
