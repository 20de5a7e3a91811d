/** An API server with etcd and nothing else: objects are checked and stored, and nothing acts on them. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { KubeConfig, KubernetesObjectApi, loadAllYaml } from '@kubernetes/client-node';
import { Cluster } from '../src/cluster.ts';
import { makeLabKeys } from './lab-keys.ts';
import { eventually, LabProcesses } from './lab-processes.ts';
import { agentSandboxManifests, labProgram } from './lab-programs.mjs';

export interface LabApiServer {
  readonly kubeconfig: string;
  readonly admin: Cluster;
  stop(): Promise<void>;
}

const never = new AbortController().signal;

export async function startLabApiServer(namespace: string): Promise<LabApiServer> {
  const run = mkdtempSync('/tmp/tapi-');
  const processes = new LabProcesses(run);
  const stop = async () => {
    for (const name of ['apiserver', 'etcd']) await processes.stop(name);
    rmSync(run, { recursive: true, force: true });
  };
  try {
    mkdirSync(join(run, 'pki'));
    const keys = makeLabKeys(join(run, 'pki'));
    keys.certificate('apiserver', '/CN=kube-apiserver', 'DNS:localhost,IP:127.0.0.1');
    writeFileSync(join(run, 'tokens.csv'), 'lab-token,admin,1,"system:masters"\n');
    const [client, peer, port] = [await freePort(), await freePort(), await freePort()];
    const [clients, peers] = [`http://127.0.0.1:${client}`, `http://127.0.0.1:${peer}`];
    processes.start('etcd', [
      ...[labProgram('etcd'), '--name', 'e1', '--data-dir', join(run, 'etcd'), '--unsafe-no-fsync'],
      ...['--listen-client-urls', clients, '--advertise-client-urls', clients],
      ...[
        '--listen-peer-urls',
        peers,
        '--initial-advertise-peer-urls',
        peers,
        '--initial-cluster',
        `e1=${peers}`,
      ],
    ]);
    processes.start('apiserver', [
      ...[
        labProgram('kube-apiserver'),
        `--etcd-servers=${clients}`,
        '--bind-address=127.0.0.1',
        `--secure-port=${port}`,
      ],
      ...[`--tls-cert-file=${run}/pki/apiserver.crt`, `--tls-private-key-file=${run}/pki/apiserver.key`],
      ...[
        '--advertise-address=127.0.0.1',
        `--token-auth-file=${run}/tokens.csv`,
        '--authorization-mode=RBAC',
      ],
      ...[
        '--service-account-issuer=https://kubernetes.default.svc',
        `--service-account-key-file=${run}/pki/sa.pub`,
      ],
      ...[`--service-account-signing-key-file=${run}/pki/sa.key`, '--service-cluster-ip-range=10.96.0.0/24'],
      '--disable-admission-plugins=ServiceAccount',
    ]);
    const kubeconfig = keys.kubeconfig('admin', `https://127.0.0.1:${port}`, { token: 'lab-token' });
    const admin = new Cluster({ kubeconfig, requestMs: 10_000 });
    await eventually('the API server answered', async () => {
      processes.requireRunning('apiserver');
      await admin.get('/api/v1/namespaces/kube-system', { what: 'answer', signal: never });
    });
    const body = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } };
    await admin.create('/api/v1/namespaces', { what: 'make the namespace', body, signal: never });
    await installResources(kubeconfig);
    return {
      kubeconfig,
      admin,
      stop: async () => {
        admin.close();
        await stop();
      },
    };
  } catch (thrown) {
    await stop();
    throw thrown;
  }
}

/** The custom resources of agent-sandbox, without the webhook that converts between their versions. */
async function installResources(kubeconfig: string): Promise<void> {
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  const api = KubernetesObjectApi.makeApiClient(config);
  const directory = join(agentSandboxManifests(), 'crds');
  for (const file of readdirSync(directory)) {
    for (const object of loadAllYaml(readFileSync(join(directory, file), 'utf8'))) {
      if (object?.kind === undefined) continue;
      object.spec.conversion = { strategy: 'None' };
      await api.create(object);
    }
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
