/**
 * A kubelet and the controller of agent-sandbox on the API server in memory: a pod is the real agent, a process of this machine
 * in a mount and a process namespace of its own, with the pod's home directory at its place. So a whole server can be tested
 * on pods that start in a moment, without a cluster, and with every failure that the API server in memory can show.
 *
 * What it does not have: images, limits, networks, nodes. Needs root, for the namespaces.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import { AGENT_PORT } from '@torpor/envd';
import { poolCredential } from '../src/pod-spec.ts';
import { FakeApi, type FakeObject } from './fake-api.ts';

const USER = 1000;
const GROUP = '/apis/agents.x-k8s.io';
const EXTENSIONS = '/apis/extensions.agents.x-k8s.io';
const VERSION = 'v1beta1';

/** `$0` is the directory of the home, and the rest the command. */
const ENTER = [
  'mount --make-rprivate / && mount -t tmpfs -o mode=755 tmpfs /home && mkdir /home/user',
  'mount --bind "$0" /home/user && cd /home/user',
  `exec setpriv --reuid ${USER} --regid ${USER} --clear-groups -- "$@"`,
].join(' && ');

/** Never counted down: the agent of a pod that was killed may keep its address for a moment. */
let started = 0;

interface HollowPod {
  readonly process: ChildProcess;
  readonly ended: Promise<unknown>;
}

export class HollowCluster {
  readonly api = new FakeApi();
  readonly namespace: string;
  readonly #directory = mkdtempSync(join(tmpdir(), 'torpor-hollow-'));
  readonly #pods = new Map<string, HollowPod>();
  #agentDir = '';
  #kubeconfig = '';

  constructor(namespace = 'torpor-sandboxes') {
    this.namespace = namespace;
  }

  async start(): Promise<void> {
    this.#agentDir = await bundleAgent();
    // Read by the user of the pods.
    chmodSync(this.#directory, 0o755);
    this.#kubeconfig = await this.api.start();
    this.api.put(GROUP, { metadata: { name: 'group' }, versions: [{ version: VERSION }] });
    this.api.onChange = (path, object) => {
      if (path.startsWith(`${this.#core}/pods/`)) this.#runPod(path, object);
      if (path.startsWith(`${this.#sandboxes}/`)) this.#control(path, object);
      if (path.startsWith(`${this.#extensions}/sandboxwarmpools/`)) this.#fillPool(object);
      if (path.startsWith(`${this.#extensions}/sandboxclaims/`)) this.#bind(path, object);
    };
    this.api.onRemove = (path, object) => this.#removed(path, object);
  }

  /** What a server needs to use it. */
  get variables(): Record<string, string> {
    return {
      TORPOR_KUBERNETES_CONFIG: this.#kubeconfig,
      TORPOR_KUBERNETES_NAMESPACE: this.namespace,
      TORPOR_KUBERNETES_IMAGE: 'hollow:1',
      TORPOR_KUBERNETES_AGENT_IMAGE: 'agent:1',
      TORPOR_KUBERNETES_REACH: 'pod-ip',
    };
  }

  /** The objects of one kind: pods, secrets, sandboxes, persistentvolumeclaims. */
  names(kind: string): string[] {
    const paths = [...this.api.objects.keys()];
    return paths.filter((path) => path.includes(`/${kind}/`)).map((path) => path.split('/').at(-1) ?? '');
  }

  /** As `kubectl delete pod --force`. */
  deletePod(name: string): void {
    this.api.remove(`${this.#core}/pods/${name}`);
  }

  deleteSandbox(name: string): void {
    this.api.remove(`${this.#sandboxes}/${name}`);
  }

  async stop(): Promise<void> {
    this.api.onChange = () => {};
    this.api.onRemove = () => {};
    for (const { process: pod } of this.#pods.values()) killGroup(pod);
    await Promise.all([...this.#pods.values()].map(({ ended }) => ended));
    await this.api.stop();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  get #core(): string {
    return `/api/v1/namespaces/${this.namespace}`;
  }

  get #sandboxes(): string {
    return `${GROUP}/${VERSION}/namespaces/${this.namespace}/sandboxes`;
  }

  get #extensions(): string {
    return `${EXTENSIONS}/${VERSION}/namespaces/${this.namespace}`;
  }

  /** Every pod has an address of the loopback, so that all agents can have the same port. */
  #runPod(path: string, { metadata, spec }: FakeObject): void {
    const { name } = metadata;
    if (this.#pods.has(name)) return;
    const secretName = volumeOf(spec, 'credential')?.['secret'] as { secretName: string } | undefined;
    const secret = this.api.objects.get(`${this.#core}/secrets/${secretName?.secretName}`);
    const data = (secret?.['data'] ?? {}) as Record<string, string>;
    const n = ++started;
    // The agent removes the file, so the directory is its user's.
    const run = this.#directoryOfUser(`${name}-${n}-run`);
    const credential = join(run, 'credential');
    const secretValue = Buffer.from(data['credential'] ?? '', 'base64').toString('utf8');
    const isPooled = argument(spec, '--sandbox-id') === undefined;
    writeFileSync(credential, isPooled ? poolCredential(secretValue, metadata.uid ?? '') : secretValue);
    chownSync(credential, USER, USER);
    const address = `127.${1 + (process.pid % 250)}.${n >> 8}.${n & 255}`;
    const child = spawn(
      'unshare',
      [
        ...['--mount', '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c', ENTER],
        ...[this.#homeOf(name, spec), process.execPath, join(this.#agentDir, 'agent.mjs')],
        ...['--listen', `${address}:${AGENT_PORT}`],
        ...(isPooled ? [] : ['--sandbox-id', argument(spec, '--sandbox-id') ?? '']),
        ...['--user', 'user', '--home', '/home/user', '--credential-file', credential],
        ...['--state-dir', '/home/user/.torpor'],
      ],
      // A process group of its own: a change of the user makes the agent outlive `unshare`, which is killed first.
      {
        detached: true,
        stdio: ['ignore', 'ignore', 'pipe'],
        env: { PATH: process.env['PATH'], HOME: '/home/user' },
      },
    );
    const ended = once(child, 'exit').then(() => {
      if (this.#pods.get(name)?.process !== child) return;
      this.#pods.delete(name);
      if (this.api.objects.has(path)) this.api.merge(path, { status: { phase: 'Failed', reason: 'Error' } });
    });
    this.#pods.set(name, { process: child, ended });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      if (!text.includes('agent ready') || !this.api.objects.has(path)) return;
      this.api.merge(path, { status: { phase: 'Running', podIP: address } });
      const owner = this.#ownerOf(name);
      if (owner !== undefined) this.#judge(owner, true);
    });
  }

  /** An `emptyDir` is new with every pod; a claim keeps its directory. */
  #homeOf(name: string, spec: FakeObject['spec']): string {
    const claim = volumeOf(spec, 'home')?.['persistentVolumeClaim'] as { claimName: string } | undefined;
    return this.#directoryOfUser(claim?.claimName ?? `${name}-${started}-home`);
  }

  #directoryOfUser(name: string): string {
    const directory = join(this.#directory, name);
    mkdirSync(directory, { recursive: true });
    chownSync(directory, USER, USER);
    return directory;
  }

  #ownerOf(pod: string): string | undefined {
    const path = `${this.#sandboxes}/${pod}`;
    return this.api.objects.has(path) ? path : undefined;
  }

  /** As the controller: one pod of the same name while the Sandbox is to run, and a claim for each of its templates. */
  #control(path: string, object: FakeObject): void {
    const { name, generation } = object.metadata;
    if (judgedGeneration(object) === generation) return;
    const claims = ((object.spec?.['volumeClaimTemplates'] ?? []) as FakeObject[]).map(
      ({ metadata }) => `${metadata.name}-${name}`,
    );
    for (const claim of claims) {
      const at = `${this.#core}/persistentvolumeclaims/${claim}`;
      if (!this.api.objects.has(at))
        this.api.put(at, { metadata: { name: claim }, status: { phase: 'Bound' } });
    }
    if (object.spec?.['operatingMode'] === 'Suspended') {
      this.deletePod(name);
      this.#judge(path, false);
      return;
    }
    if (this.api.objects.has(`${this.#core}/pods/${name}`)) this.#judge(path, true);
    else this.#makePod(object);
  }

  #makePod({ metadata, spec }: FakeObject): void {
    const template = spec?.['podTemplate'] as { metadata?: object; spec: Record<string, unknown> };
    const volumes = [
      ...((template.spec['volumes'] ?? []) as object[]),
      { name: 'home', persistentVolumeClaim: { claimName: `home-${metadata.name}` } },
    ];
    this.api.put(`${this.#core}/pods/${metadata.name}`, {
      metadata: { ...template.metadata, name: metadata.name },
      spec: { ...template.spec, volumes },
    });
  }

  /** As the controller of pools: Sandboxes that wait, as many as the pool is to have. */
  #fillPool({ metadata, spec }: FakeObject): void {
    const template = this.api.objects.get(`${this.#extensions}/sandboxtemplates/${metadata.name}`);
    const missing = Number(spec?.['replicas']) - this.waiting().length;
    for (let made = 0; made < missing; made++) {
      const name = `${metadata.name}-${++started}`;
      const owner = { kind: 'SandboxWarmPool', uid: metadata.uid ?? '' };
      const labels = { 'agents.x-k8s.io/warm-pool-sandbox': metadata.name };
      this.api.put(`${this.#sandboxes}/${name}`, {
        metadata: { name, labels, ownerReferences: [owner] },
        spec: { operatingMode: 'Running', ...template?.spec },
      });
    }
  }

  /** The names of the Sandboxes that wait in pools. */
  waiting(): string[] {
    const all = [...this.api.objects].filter(([path]) => path.startsWith(`${this.#sandboxes}/`));
    const pooled = all.filter(
      ([, { metadata }]) => metadata.ownerReferences?.[0]?.kind === 'SandboxWarmPool',
    );
    return pooled.map(([, { metadata }]) => metadata.name);
  }

  /** As the controller of claims. A claim that is being deleted is left alone. */
  #bind(path: string, { metadata, spec, status }: FakeObject): void {
    if (metadata.deletionTimestamp !== undefined || status !== undefined) return;
    const { name: poolName } = (spec?.['warmPoolRef'] ?? {}) as { name?: string };
    const pool = this.api.objects.get(`${this.#extensions}/sandboxwarmpools/${poolName}`);
    const said = (reason: string) => ({ conditions: [{ type: 'Ready', status: 'False', reason }] });
    if (pool === undefined) return void this.api.merge(path, { status: said('WarmPoolNotFound') });
    const [name] = this.waiting();
    if (name === undefined) return void this.api.merge(path, { status: said('SandboxMissing') });
    const ownerReferences = [{ kind: 'SandboxClaim', uid: metadata.uid ?? '' }];
    this.api.merge(`${this.#sandboxes}/${name}`, { metadata: { ownerReferences } });
    this.api.merge(path, { status: { sandbox: { name } } });
    this.#fillPool(pool);
  }

  #judge(path: string, isRunning: boolean): void {
    const observedGeneration = this.api.objects.get(path)?.metadata.generation;
    const said = (type: string, isTrue: boolean, reason: string) => ({
      type,
      status: isTrue ? 'True' : 'False',
      reason,
      observedGeneration,
    });
    const conditions = isRunning
      ? [said('Ready', true, 'DependenciesReady'), said('Suspended', false, 'NotSuspended')]
      : [said('Ready', false, 'SandboxSuspended'), said('Suspended', true, 'PodTerminated')];
    this.api.merge(path, { status: { conditions } });
  }

  #removed(path: string, { metadata }: FakeObject): void {
    const { name } = metadata;
    if (path.startsWith(`${this.#core}/pods/`)) {
      killGroup(this.#pods.get(name)?.process);
      this.#pods.delete(name);
      this.#collect('Pod', metadata.uid);
      const owner = this.api.objects.get(`${this.#sandboxes}/${name}`);
      // The controller makes a pod that was deleted again.
      if (owner !== undefined && owner.spec?.['operatingMode'] !== 'Suspended') this.#makePod(owner);
    }
    if (path.startsWith(`${this.#extensions}/sandboxclaims/`)) this.#collect('SandboxClaim', metadata.uid);
    if (path.startsWith(`${this.#extensions}/sandboxwarmpools/`))
      this.#collect('SandboxWarmPool', metadata.uid);
    if (path.startsWith(`${this.#sandboxes}/`)) {
      this.deletePod(name);
      this.api.remove(`${this.#core}/persistentvolumeclaims/home-${name}`);
      rmSync(join(this.#directory, `home-${name}`), { recursive: true, force: true });
      this.#collect('Sandbox', metadata.uid);
    }
  }

  /** As the garbage collector: removes what the object owned. */
  #collect(kind: string, uid: string | undefined): void {
    for (const [path, object] of this.api.objects) {
      const owners = object.metadata.ownerReferences ?? [];
      if (owners.some((owner) => owner.kind === kind && owner.uid === uid)) this.api.remove(path);
    }
  }
}

function killGroup(pod: ChildProcess | undefined): void {
  if (pod?.pid === undefined || pod.exitCode !== null || pod.signalCode !== null) return;
  process.kill(-pod.pid, 'SIGKILL');
}

function volumeOf(spec: FakeObject['spec'], name: string): Record<string, unknown> | undefined {
  const volumes = (spec?.['volumes'] ?? []) as Record<string, unknown>[];
  return volumes.find((volume) => volume['name'] === name);
}

/** The argument after a flag of the container's command. */
function argument(spec: FakeObject['spec'], flag: string): string | undefined {
  const [container] = (spec?.['containers'] ?? []) as { command: string[] }[];
  const at = container?.command.indexOf(flag) ?? -1;
  return at < 0 ? undefined : container?.command[at + 1];
}

function judgedGeneration({ status }: FakeObject): number | undefined {
  const [first] = (status?.['conditions'] ?? []) as { observedGeneration?: number }[];
  return first?.observedGeneration;
}

/** Why no hollow cluster can be started here; null when one can. */
export function whyNotHollow(): string | null {
  return process.getuid?.() === 0 ? null : 'pods need namespaces of their own, which need root';
}
