import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { readPodSettings } from '@torpor/pods';
import { helmProgram, loadAllYaml, whyNoLab } from '@torpor/pods/testing';
import { readConfig } from '@torpor/server';
import { afterAll, describe, expect, it } from 'vitest';

const execute = promisify(execFile);
const CHART = join(import.meta.dirname, '../../deploy/helm/torpor');
const why = whyNoLab(['helm']);

const VALUES = {
  image: { repository: 'registry.example.com/torpor', tag: '0.1.0' },
  auth: { apiKey: 'a'.repeat(64), clusterSecret: 'c'.repeat(40) },
  database: { url: 'postgres://torpor:secret@db:5432/torpor' },
  store: { url: 's3://bucket/torpor', region: 'eu-central-1', accessKeyId: 'id', secretAccessKey: 'key' },
  sandboxes: { agentImage: 'registry.example.com/torpor-agent:0.1.0' },
};

interface Rendered {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly { readonly resources: string[]; readonly verbs: string[] }[];
  readonly data?: Record<string, string>;
  // biome-ignore lint/suspicious/noExplicitAny: manifests of many kinds are read here.
  readonly spec?: any;
}

/** What Helm makes of the chart, without a cluster. */
describe.skipIf(why !== null)(`the Helm chart${why === null ? '' : `: ${why}`}`, () => {
  const directory = mkdtempSync(join(tmpdir(), 'torpor-chart-'));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  let files = 0;
  const helm = async (command: readonly string[], values: object) => {
    const file = join(directory, `values-${++files}.json`);
    writeFileSync(file, JSON.stringify({ ...VALUES, ...values }));
    const { stdout } = await execute(helmProgram(), [...command, '-f', file], {
      env: { ...process.env, HELM_CACHE_HOME: directory, HELM_CONFIG_HOME: directory },
    });
    return stdout;
  };
  const template = async (values: object = {}): Promise<Rendered[]> => {
    const command = ['template', 'torpor', CHART, '--namespace', 'system', '--kube-version', '1.36.0'];
    return loadAllYaml(await helm(command, values)).filter(Boolean) as Rendered[];
  };
  const one = (objects: readonly Rendered[], kind: string, name: string): Rendered => {
    const found = objects.find((object) => object.kind === kind && object.metadata.name === name);
    if (found === undefined) throw new Error(`There is no ${kind} ${name}.`);
    return found;
  };
  const containerOf = (set: Rendered) => set.spec.template.spec.containers[0];
  /** The variables of the server; those from Secrets have a value that fits. */
  const variablesOf = (set: Rendered): Record<string, string> => {
    const secrets: Record<string, string> = {
      TORPOR_DATABASE_URL: VALUES.database.url,
      TORPOR_API_KEY: VALUES.auth.apiKey,
      TORPOR_CLUSTER_SECRET: VALUES.auth.clusterSecret,
      POD_NAME: 'torpor-0',
      POD_IP: '10.0.0.1',
    };
    const env: { name: string; value?: string }[] = containerOf(set).env;
    const plain = env.map(({ name, value = secrets[name] ?? 'from a secret' }) => [name, value] as const);
    return Object.fromEntries(
      plain.map(([name, value]) => [
        name,
        value.replace('$(POD_NAME)', 'torpor-0').replace('$(POD_IP)', '10.0.0.1'),
      ]),
    );
  };

  it('passes the linter in both shapes', async () => {
    const ingress = { enabled: true };
    const both = { domain: 'sbx.example.com', ingress, nodes: { enabled: true } };
    expect(await helm(['lint', '--strict', CHART], both)).toContain('0 chart(s) failed');
  });

  it('gives servers only variables that they understand, and not the rights of root', async () => {
    const settings = { 'engine.nodeLeaseMs': '60s' };
    const controlPlane = { runtimes: ['kubernetes', 'agent-sandbox'] };
    const set = one(
      await template({ settings, controlPlane, domain: 'x.example.com' }),
      'StatefulSet',
      'torpor',
    );
    const env = variablesOf(set);
    const config = await readConfig([], env, directory);
    expect(config).toMatchObject({
      node: 'torpor-0',
      advertise: 'http://10.0.0.1:7676',
      runtime: ['kubernetes', 'agent-sandbox'],
      drainOnStop: true,
      domain: 'x.example.com',
    });
    expect(config.configured.settings.engine).toMatchObject({ nodeLeaseMs: 60_000, nodeDrainMs: 60_000 });
    expect(env['TORPOR_NODE_MEMORY_MB']).toBe('1000000');
    expect(readPodSettings(env)).toMatchObject({
      namespace: 'torpor-sandboxes',
      reach: 'pod-ip',
      user: 1000,
    });
    expect(set.spec.template.spec).toMatchObject({
      shareProcessNamespace: true,
      securityContext: { runAsNonRoot: true },
    });
    expect(containerOf(set).securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    });
  });

  it('gives servers no rights outside of the namespace of the sandboxes, and none that they do not use', async () => {
    const objects = await template();
    expect(objects.filter(({ kind }) => kind.startsWith('Cluster'))).toEqual([]);
    const { metadata, rules } = one(objects, 'Role', 'torpor');
    expect(metadata.namespace).toBe('torpor-sandboxes');
    expect(rules?.map(({ resources, verbs }) => [resources.join(), verbs.join()])).toEqual([
      ['pods', 'get,list,watch,create,delete'],
      ['secrets', 'get,list,create,patch,delete'],
    ]);
  });

  it('gives organisations namespaces of their own, with the same rights and policies in each', async () => {
    const objects = await template({
      sandboxes: { ...VALUES.sandboxes, orgNamespaces: { acme: 'acme-sandboxes', beta: 'acme-sandboxes' } },
    });
    const namespaces = ['torpor-sandboxes', 'acme-sandboxes'];
    for (const kind of ['Role', 'RoleBinding', 'NetworkPolicy'])
      expect(
        objects
          .filter((object) => object.kind === kind && namespaces.includes(object.metadata.namespace ?? ''))
          .map(({ metadata }) => metadata.namespace),
      ).toEqual(namespaces);
    expect(objects.filter(({ kind }) => kind === 'Namespace').map(({ metadata }) => metadata.name)).toEqual(
      namespaces,
    );
    const env = variablesOf(one(objects, 'StatefulSet', 'torpor'));
    expect(readPodSettings(env).orgNamespaces).toEqual({ acme: 'acme-sandboxes', beta: 'acme-sandboxes' });
  });

  it('gives the rights for a warm pool only with one', async () => {
    const controlPlane = { runtimes: ['agent-sandbox'] };
    const rules = async (warmPool: number) =>
      one(
        await template({ controlPlane, sandboxes: { ...VALUES.sandboxes, warmPool } }),
        'Role',
        'torpor',
      ).rules?.map(({ resources }) => resources.join());
    expect(await rules(0)).not.toContain('sandboxclaims');
    expect(await rules(2)).toEqual(
      expect.arrayContaining(['sandboxtemplates,sandboxwarmpools', 'sandboxclaims']),
    );
  });

  it('runs nodes with gVisor as privileged pods on labelled machines, which drain before they stop', async () => {
    const nodes = { enabled: true, drainSeconds: 120 };
    const objects = await template({ nodes, controlPlane: { enabled: false } });
    const set = one(objects, 'StatefulSet', 'torpor-node');
    const { spec } = set.spec.template;
    expect(spec).toMatchObject({
      nodeSelector: { 'torpor.dev/node': 'true' },
      terminationGracePeriodSeconds: 180,
      automountServiceAccountToken: false,
      shareProcessNamespace: true,
    });
    expect(containerOf(set).securityContext).toEqual({ privileged: true });
    const config = await readConfig([], variablesOf(set), directory);
    expect(config).toMatchObject({ runtime: ['gvisor'], drainOnStop: true, nodeMemoryMb: 6144 });
    expect(config.configured.settings.engine.nodeDrainMs).toBe(120_000);
    expect(one(objects, 'PodDisruptionBudget', 'torpor-node').spec).toMatchObject({ maxUnavailable: 1 });
    expect(objects.some(({ kind }) => kind === 'Role' || kind === 'Namespace')).toBe(false);
  });

  it('leads the domain and everything below it to the servers', async () => {
    const tls = { secretName: 'wildcard' };
    const objects = await template({ domain: 'sbx.example.com', ingress: { enabled: true, tls } });
    const { rules, tls: certificates } = one(objects, 'Ingress', 'torpor').spec;
    expect(rules.map(({ host }: { host: string }) => host)).toEqual(['sbx.example.com', '*.sbx.example.com']);
    expect(certificates).toEqual([
      { hosts: ['sbx.example.com', '*.sbx.example.com'], secretName: 'wildcard' },
    ]);
  });

  it('keeps sandboxes from the cluster and from other sandboxes', async () => {
    const policy = one(await template(), 'NetworkPolicy', 'torpor-sandboxes');
    expect(policy.metadata.namespace).toBe('torpor-sandboxes');
    expect(policy.spec.policyTypes).toEqual(['Ingress', 'Egress']);
    expect(policy.spec.egress[1].to[0].ipBlock.except).toContain('10.0.0.0/8');
    expect(policy.spec.ingress).toHaveLength(1);
  });

  it('writes no Secret where Secrets exist', async () => {
    const objects = await template({
      auth: { existingSecret: 'auth' },
      database: { existingSecret: 'db' },
      store: { url: 's3://bucket', existingSecret: 's3' },
    });
    expect(objects.filter(({ kind }) => kind === 'Secret')).toEqual([]);
    const set = one(objects, 'StatefulSet', 'torpor');
    const text = JSON.stringify(containerOf(set).env);
    for (const name of ['auth', 'db', 's3']) expect(text).toContain(`"name":"${name}"`);
  });

  it.each([
    ['an unknown value', { replicas: 2 }, 'replicas'],
    ['a short key', { auth: { ...VALUES.auth, apiKey: 'short' } }, '/auth/apiKey'],
    ['no key', { auth: { clusterSecret: VALUES.auth.clusterSecret } }, 'auth.apiKey'],
    ['no database', { database: {} }, 'database.url'],
    ['another database', { database: { url: 'mysql://x' } }, '/database/url'],
    ['an unknown runtime', { controlPlane: { runtimes: ['gvisor'] } }, '/controlPlane/runtimes/0'],
    ['no agent image', { sandboxes: {} }, 'sandboxes.agentImage'],
    ['a store that servers cannot share', { store: { url: 'file:///data' } }, 'store.url'],
    ['an ingress without a domain', { ingress: { enabled: true } }, 'domain'],
    ['no server at all', { controlPlane: { enabled: false } }, 'no server'],
    [
      'a namespace that is none',
      { sandboxes: { ...VALUES.sandboxes, orgNamespaces: { acme: 'No Namespace' } } },
      'orgNamespaces',
    ],
    ['a misspelt setting', { settings: { nodeLeaseMs: '60s' } }, 'nodeLeaseMs'],
  ])('refuses %s with the name of the value', async (_, values, name) => {
    await expect(template(values)).rejects.toThrow(name);
  });
});
