/** The chart, installed on a lab cluster with a database and a store that the pods reach. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  AGENT_IMAGE,
  eventually,
  helmProgram,
  type LabCluster,
  PLAIN_IMAGE,
  STORAGE_CLASS,
} from '@torpor/pods/testing';
import { Torpor } from '@torpor/sdk';
import { versitygwProgram } from '../../packages/object-store/testing/lab-program.mjs';
import { findPostgres } from '../../scripts/setup/postgresql.mjs';

const execute = promisify(execFile);
const CHART = join(import.meta.dirname, '../../deploy/helm/torpor');
const API_KEY = 'c0ffee42'.repeat(8);
const S3_PORT = 7070;
const POSTGRES_PORT = 5432;
export const SYSTEM = 'system';
const ask = { what: 'answer', signal: new AbortController().signal };

export interface ServerPod {
  readonly metadata: { readonly name: string; readonly uid: string; readonly deletionTimestamp?: string };
  readonly spec: { readonly nodeName: string };
  readonly status: {
    readonly podIP?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

export interface InstalledChart {
  /** `helm upgrade` with these values over those of before. */
  upgrade(values: object): Promise<void>;
  /** The pods of the servers, by name. */
  pods(): Promise<readonly ServerPod[]>;
  /** Resolves when so many servers are ready. */
  untilReady(count: number): Promise<readonly ServerPod[]>;
  /** A client of one server. */
  clientOf(pod: ServerPod): Promise<Torpor>;
  uninstall(): Promise<void>;
  dispose(): Promise<void>;
}

export function isReady({ metadata, status }: ServerPod): boolean {
  const ready = status.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
  return ready && metadata.deletionTimestamp === undefined;
}

/** `postgres` is the address of a server that listens on a socket of this machine. */
export async function installChart(
  cluster: LabCluster,
  postgres: string,
  values: object,
): Promise<InstalledChart> {
  const directory = await mkdtemp(join(tmpdir(), 'torpor-helm-'));
  const database = await makeDatabase(postgres);
  cluster.serve(POSTGRES_PORT, database.socket);
  await mkdir(join(directory, 's3', 'torpor'), { recursive: true });
  const s3 = [versitygwProgram(), '--port', `${cluster.address}:${S3_PORT}`, '--region', 'us-east-1'];
  cluster.run('s3', [...s3, 'posix', join(directory, 's3')], {
    ...process.env,
    ROOT_ACCESS_KEY: 'labkey',
    ROOT_SECRET_KEY: 'labsecret',
  });
  const basic = {
    image: { repository: 'local.test/torpor', tag: '0.1.0' },
    auth: { apiKey: API_KEY, clusterSecret: 'c1a5'.repeat(16) },
    database: { url: `postgres://torpor@${cluster.address}:${POSTGRES_PORT}/${database.name}` },
    store: {
      url: 's3://torpor/lab',
      region: 'us-east-1',
      endpoint: `http://${cluster.address}:${S3_PORT}`,
      accessKeyId: 'labkey',
      secretAccessKey: 'labsecret',
    },
  };
  const helm = async (args: readonly string[]) => {
    const env = { ...process.env, HELM_CACHE_HOME: directory, HELM_CONFIG_HOME: directory };
    const where = ['--kubeconfig', cluster.kubeconfig, '--namespace', SYSTEM];
    await execute(helmProgram(), [...args, ...where], { env });
  };
  const files: string[] = [];
  const given = async (more: object) => {
    const file = join(directory, `values-${files.length}.json`);
    await writeFile(file, JSON.stringify(more));
    files.push(file);
    return files.flatMap((name) => ['-f', name]);
  };
  await given(basic);
  await helm(['install', 'torpor', CHART, '--create-namespace', ...(await given(values))]);

  const pods = async () => {
    const query = { labelSelector: 'app.kubernetes.io/name=torpor' };
    const path = `/api/v1/namespaces/${SYSTEM}/pods`;
    const { items } = await cluster.admin.get<{ items: ServerPod[] }>(path, { ...ask, query });
    return items.toSorted((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  };
  return {
    pods,
    upgrade: async (more) => helm(['upgrade', 'torpor', CHART, ...(await given(more))]),
    untilReady: (count) =>
      eventually(
        `${count} servers were ready`,
        async () => {
          const all = await pods();
          const ready = all.filter(isReady);
          if (all.length !== count || ready.length !== count)
            throw new Error(JSON.stringify(all.map(({ status }) => status)));
          return all;
        },
        600_000,
      ),
    clientOf: async ({ status: { podIP = '' } }) =>
      new Torpor({ url: await cluster.reach(podIP, 7676), apiKey: API_KEY }),
    uninstall: () => helm(['uninstall', 'torpor', '--wait']),
    dispose: async () => {
      await database.drop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** The values of shape (a) on the lab, whose images are not in a registry. */
export const CONTROL_PLANE = {
  controlPlane: {
    replicas: 2,
    runtimes: ['kubernetes', 'agent-sandbox'],
    storageClass: STORAGE_CLASS,
    resources: { requests: { cpu: '50m', memory: '64Mi' }, limits: { memory: '1Gi' } },
  },
  sandboxes: {
    agentImage: AGENT_IMAGE,
    image: PLAIN_IMAGE,
    pullPolicy: 'IfNotPresent',
    storageClass: STORAGE_CLASS,
    memoryMb: 128,
    cpuRequest: '10m',
  },
};

async function makeDatabase(server: string) {
  const url = new URL(server);
  const name = `torpor_chart_${randomBytes(6).toString('hex')}`;
  const psql = join(findPostgres() ?? '', 'psql');
  const administer = (sql: string) => execute(psql, ['--quiet', '--command', sql, server]);
  await administer(`CREATE DATABASE ${name}`);
  const directory = url.searchParams.get('host') ?? decodeURIComponent(url.hostname);
  return {
    name,
    socket: join(directory, `.s.PGSQL.${url.port || POSTGRES_PORT}`),
    drop: () => administer(`DROP DATABASE ${name} WITH (FORCE)`),
  };
}
