/**
 * A Kubernetes cluster for tests: etcd, API server, controller manager, scheduler, the controller of agent-sandbox, and one or
 * more nodes (`lab-node.ts`), in a network namespace of their own. `npm run lab:setup` builds the programs.
 *
 * What it does not have: DNS, kube-proxy, enforced network policies. Pods reach the API server at its service address, which a
 * relay serves.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer, connect as dial, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { KubeConfig, KubernetesObjectApi, loadAllYaml } from '@kubernetes/client-node';
import { Cluster } from '../src/cluster.ts';
import { writeLabImages } from './lab-images.ts';
import { type LabKeys, makeLabKeys } from './lab-keys.ts';
import { HIERARCHIES, LabNode } from './lab-node.ts';
import { eventually, LabProcesses } from './lab-processes.ts';
import { agentSandboxManifests, labProgram } from './lab-programs.mjs';
import { LabVolumes } from './lab-volumes.ts';

const NODE_IP = '10.66.0.1';
/** The address of the service `kubernetes`. */
const SERVICE_IP = '10.96.0.1';
const API = `https://${NODE_IP}:6443`;
/** As `lab-relay.mjs`. */
const NO_DELAY = { noDelay: true };
const never = new AbortController().signal;

export interface LabCluster {
  /** A kubeconfig of an administrator, through an address of the loopback. */
  readonly kubeconfig: string;
  readonly admin: Cluster;
  /** The directory for volumes of the node. */
  readonly volumes: string;
  /** An address of the cluster's network at which a program of `run` can listen. */
  readonly address: string;
  /** Starts a program in the cluster's network. It ends with the lab. */
  run(name: string, command: readonly string[], env?: NodeJS.ProcessEnv): void;
  /** Lets programs in the cluster's network reach a Unix socket of this machine at `address` and this port. */
  serve(port: number, socket: string): void;
  /** An address of this machine that leads to an address of the cluster's network. */
  reach(host: string, port: number): Promise<string>;
  /** Gives an image to all nodes. */
  importImage(archive: string): void;
  /** Stops and continues a process: apiserver, kubelet-node1, kcm, sched, agent-sandbox. */
  signal(name: string, signal: NodeJS.Signals): void;
  /** Ends the API server at once, and starts it again on the same data. */
  restartApiServer(whileDown: () => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

export async function startLabCluster({ agentSandbox = true, nodes = 1 } = {}): Promise<LabCluster> {
  const lab = new Lab();
  try {
    await lab.start(agentSandbox, nodes);
    return lab;
  } catch (thrown) {
    await lab.stop();
    throw thrown;
  }
}

class Lab implements LabCluster {
  readonly #run = mkdtempSync('/tmp/tlab-');
  readonly #namespace = `tlab${process.pid}`;
  readonly #processes = new LabProcesses(this.#run);
  readonly #keys: LabKeys;
  readonly #connections = new Set<Socket>();
  readonly #proxy = createServer(NO_DELAY, (client) => this.#relay(client, this.#socket()));
  readonly #proxies: Server[] = [];
  readonly #reached = new Map<string, Promise<string>>();
  readonly #programs: string[] = [];
  readonly #relays: string[] = [];
  readonly #nodes: LabNode[] = [];
  readonly volumes: string;
  readonly address = NODE_IP;
  #provisioner: LabVolumes | undefined;
  kubeconfig = '';
  admin!: Cluster;

  constructor() {
    for (const name of ['pki', 'cni', 'volumes', 'images']) mkdirSync(join(this.#run, name));
    this.#keys = makeLabKeys(join(this.#run, 'pki'));
    this.volumes = join(this.#run, 'volumes');
  }

  async start(agentSandbox: boolean, nodes: number): Promise<void> {
    this.#makeNetwork();
    this.#writeKeys();
    this.#startEtcd();
    this.#startApiServer();
    this.#startRelay(SERVICE_IP, 443, NODE_IP, 6443);
    const images = writeLabImages(join(this.#run, 'images'));
    await this.#openDoor();
    for (let n = 1; n <= nodes; n++) this.#nodes.push(this.#makeNode(n));
    for (const node of this.#nodes) await node.startContainers(await images);
    await this.#untilApiAnswers();
    this.#startControllers();
    for (const node of this.#nodes) node.startKubelet();
    for (const node of this.#nodes)
      await eventually(`${node.name} was ready`, () => this.#requireReady(node));
    await eventually('the default service account', () =>
      this.admin.get('/api/v1/namespaces/default/serviceaccounts/default', {
        what: 'show it',
        signal: never,
      }),
    );
    if (agentSandbox) await this.#startAgentSandbox();
    this.#provisioner = new LabVolumes(this.admin, this.volumes);
    this.#provisioner.begin();
  }

  run(name: string, command: readonly string[], env?: NodeJS.ProcessEnv): void {
    this.#programs.push(name);
    this.#processes.start(name, ['nsenter', ...this.#inNetwork(), ...command], env);
  }

  serve(port: number, socket: string): void {
    this.#startRelay(this.address, port, socket, 0);
  }

  reach(host: string, port: number): Promise<string> {
    const key = `${host}-${port}`;
    const known = this.#reached.get(key) ?? this.#openWay(host, port);
    this.#reached.set(key, known);
    return known;
  }

  async #openWay(host: string, port: number): Promise<string> {
    const socket = join(this.#run, `${host}-${port}.sock`);
    this.#startRelay(socket, 0, host, port);
    const proxy = createServer(NO_DELAY, (client) => this.#relay(client, socket));
    this.#proxies.push(proxy);
    proxy.listen(0, '127.0.0.1');
    await new Promise((resolve) => proxy.once('listening', resolve));
    proxy.unref();
    await eventually(`the relay to ${host}:${port}`, () => {
      if (!existsSync(socket)) throw new Error('not yet');
    });
    return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  }

  importImage(archive: string): void {
    for (const node of this.#nodes) node.importImage(archive);
  }

  signal(name: string, signal: NodeJS.Signals): void {
    this.#processes.signal(name, signal);
  }

  async restartApiServer(whileDown: () => Promise<void>): Promise<void> {
    await this.#processes.stop('apiserver');
    try {
      await whileDown();
    } finally {
      this.#startApiServer();
      await this.#untilApiAnswers();
    }
  }

  /** Stops controllers first, or they make the pods again. */
  async stop(): Promise<void> {
    await this.#provisioner?.stop();
    for (const name of ['agent-sandbox', 'kcm', 'sched']) await this.#processes.stop(name);
    await this.#deletePods().catch(() => {});
    this.admin?.close();
    for (const node of this.#nodes) await node.stopServices();
    for (const name of [...this.#programs, 'apiserver', 'etcd', ...this.#relays])
      await this.#processes.stop(name);
    this.#killLeftovers();
    for (const node of this.#nodes) await node.stop();
    for (const proxy of [this.#proxy, ...this.#proxies]) proxy.close();
    for (const socket of this.#connections) socket.destroy();
    this.#removeControlGroups();
    quietly(() => execFileSync('ip', ['netns', 'del', this.#namespace], { stdio: 'ignore' }));
    await eventually(
      'the directory of the lab was removed',
      () => rmSync(this.#run, { recursive: true, force: true }),
      10_000,
    );
  }

  // --- the machine

  #ip(...args: string[]): void {
    execFileSync('ip', ['-n', this.#namespace, ...args]);
  }

  /** The kernel may have no dummy devices: an empty bridge carries the address of the node. */
  #makeNetwork(): void {
    execFileSync('ip', ['netns', 'add', this.#namespace]);
    this.#ip('link', 'set', 'lo', 'up');
    this.#ip('link', 'add', 'node0', 'type', 'bridge');
    this.#ip('addr', 'add', `${NODE_IP}/24`, 'dev', 'node0');
    this.#ip('addr', 'add', `${SERVICE_IP}/32`, 'dev', 'node0');
    this.#ip('link', 'set', 'node0', 'up');
    this.#ip('route', 'add', 'default', 'via', NODE_IP, 'dev', 'node0');
    execFileSync('nsenter', [...this.#inNetwork(), 'sysctl', '-qw', 'net.ipv4.ip_forward=1']);
  }

  #inNetwork(): string[] {
    return [`--net=/run/netns/${this.#namespace}`];
  }

  #group(hierarchy: string): string {
    return `/sys/fs/cgroup/${hierarchy}/${this.#namespace}`;
  }

  #removeControlGroups(): void {
    for (const name of [...HIERARCHIES, 'unified']) {
      quietly(() =>
        execFileSync('find', [this.#group(name), '-depth', '-type', 'd', '-exec', 'rmdir', '{}', ';'], {
          stdio: 'ignore',
        }),
      );
    }
  }

  #killLeftovers(): void {
    const found = new Set<number>();
    for (const hierarchy of ['pids', 'memory']) {
      quietly(() => {
        const text = execFileSync(
          'find',
          [this.#group(hierarchy), '-name', 'cgroup.procs', '-exec', 'cat', '{}', ';'],
          {
            encoding: 'utf8',
          },
        );
        for (const pid of text.split('\n').filter(Boolean)) found.add(Number(pid));
      });
    }
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      quietly(() => {
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
        if (command.includes('containerd-shim') && command.includes(`-address ${this.#run}/`))
          found.add(Number(pid));
      });
    }
    for (const pid of found) quietly(() => process.kill(pid, 'SIGKILL'));
  }

  // --- the control plane

  #writeKeys(): void {
    const { certificate } = this.#keys;
    const names = 'DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost';
    certificate('apiserver', '/CN=kube-apiserver', `${names},IP:127.0.0.1,IP:${NODE_IP},IP:${SERVICE_IP}`);
    certificate('admin', '/O=system:masters/CN=admin');
    certificate('kubelet-client', '/O=system:masters/CN=apiserver-kubelet-client');
    certificate('kcm', '/CN=system:kube-controller-manager');
    certificate('sched', '/CN=system:kube-scheduler');
    for (const name of ['kcm', 'sched']) this.#keys.kubeconfig(name, API, this.#userOf(name));
  }

  #userOf(name: string): object {
    return { 'client-certificate': this.#key(`${name}.crt`), 'client-key': this.#key(`${name}.key`) };
  }

  #key(name: string): string {
    return join(this.#keys.directory, name);
  }

  #inControlPlane(name: string, program: string, ...flags: string[]): void {
    this.#processes.start(name, ['nsenter', ...this.#inNetwork(), labProgram(program), ...flags]);
  }

  #startEtcd(): void {
    const [client, peer] = ['http://127.0.0.1:2379', 'http://127.0.0.1:2380'];
    this.#inControlPlane(
      'etcd',
      'etcd',
      ...['--name', 'e1', '--data-dir', join(this.#run, 'etcd'), '--unsafe-no-fsync'],
      ...['--listen-client-urls', client, '--advertise-client-urls', client],
      ...[
        '--listen-peer-urls',
        peer,
        '--initial-advertise-peer-urls',
        peer,
        '--initial-cluster',
        `e1=${peer}`,
      ],
    );
  }

  #startApiServer(): void {
    this.#inControlPlane(
      'apiserver',
      'kube-apiserver',
      '--etcd-servers=http://127.0.0.1:2379',
      ...[`--bind-address=${NODE_IP}`, `--advertise-address=${NODE_IP}`, '--secure-port=6443'],
      ...[
        `--tls-cert-file=${this.#key('apiserver.crt')}`,
        `--tls-private-key-file=${this.#key('apiserver.key')}`,
      ],
      `--client-ca-file=${this.#key('ca.crt')}`,
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${this.#key('sa.pub')}`,
      `--service-account-signing-key-file=${this.#key('sa.key')}`,
      ...[
        '--service-cluster-ip-range=10.96.0.0/16',
        '--authorization-mode=Node,RBAC',
        '--allow-privileged=true',
      ],
      '--enable-admission-plugins=NodeRestriction',
      `--kubelet-client-certificate=${this.#key('kubelet-client.crt')}`,
      `--kubelet-client-key=${this.#key('kubelet-client.key')}`,
      ...[
        `--kubelet-certificate-authority=${this.#key('ca.crt')}`,
        '--kubelet-preferred-address-types=InternalIP',
      ],
      // The webhook of agent-sandbox runs outside: the API server must dial its endpoint and not a service address.
      '--enable-aggregator-routing=true',
    );
  }

  #startControllers(): void {
    const own = (name: string) => {
      const config = this.#key(`${name}.kubeconfig`);
      const paths = ['kubeconfig', 'authentication-kubeconfig', 'authorization-kubeconfig'];
      return [
        ...paths.map((flag) => `--${flag}=${config}`),
        '--bind-address=127.0.0.1',
        '--leader-elect=false',
      ];
    };
    this.#inControlPlane(
      'kcm',
      'kube-controller-manager',
      ...own('kcm'),
      ...[
        `--service-account-private-key-file=${this.#key('sa.key')}`,
        `--root-ca-file=${this.#key('ca.crt')}`,
      ],
      ...['--use-service-account-credentials=true', '--allocate-node-cidrs=false'],
      // So that a test of a lost node need not wait for minutes.
      ...['--node-monitor-grace-period=12s', '--node-monitor-period=1s'],
    );
    this.#inControlPlane('sched', 'kube-scheduler', ...own('sched'));
  }

  /** From outside of the network namespace: a Unix socket leads into it. */
  async #openDoor(): Promise<void> {
    this.#startRelay(this.#socket(), 0, NODE_IP, 6443);
    this.#proxy.listen(0, '127.0.0.1');
    await new Promise((resolve) => this.#proxy.once('listening', resolve));
    this.#proxy.unref();
    const { port } = this.#proxy.address() as AddressInfo;
    this.kubeconfig = this.#keys.kubeconfig('admin', `https://127.0.0.1:${port}`, this.#userOf('admin'));
    this.admin = new Cluster({ kubeconfig: this.kubeconfig, requestMs: 10_000 });
  }

  /** Each end is a path, or an address of the cluster's network. */
  #startRelay(listen: string, listenPort: number, host: string, port: number): void {
    const name = `relay-${this.#relays.length}`;
    this.#relays.push(name);
    const from = listen.startsWith('/') ? listen : `${listen}:${listenPort}`;
    const relay = join(import.meta.dirname, 'lab-relay.mjs');
    const to = host.startsWith('/') ? host : `${host}:${port}`;
    const command = [process.execPath, relay, from, to];
    this.#processes.start(name, ['nsenter', ...this.#inNetwork(), ...command]);
  }

  #socket(): string {
    return join(this.#run, 'api.sock');
  }

  #relay(client: Socket, socket: string): void {
    const server = dial(socket);
    this.#connections.add(client);
    client.on('close', () => this.#connections.delete(client));
    client.pipe(server).pipe(client);
    client.on('error', () => server.destroy());
    server.on('error', () => client.destroy());
  }

  #untilApiAnswers(): Promise<unknown> {
    return eventually('the API server answered', async () => {
      this.#processes.requireRunning('apiserver');
      return this.admin.get('/api/v1/namespaces/default', { what: 'answer', signal: never });
    });
  }

  // --- the nodes

  /** All nodes are in one network, each with an address. */
  #makeNode(n: number): LabNode {
    const [name, ip] = [`node${n}`, `10.66.0.${n}`];
    if (n > 1) this.#ip('addr', 'add', `${ip}/24`, 'dev', 'node0');
    this.#keys.certificate(name, `/O=system:nodes/CN=system:node:${name}`, `DNS:${name},IP:${ip}`);
    this.#keys.kubeconfig(name, API, this.#userOf(name));
    return new LabNode({
      name,
      ip,
      index: n,
      run: this.#run,
      group: `${this.#namespace}/${name}`,
      inNetwork: this.#inNetwork(),
      keys: this.#keys.directory,
      processes: this.#processes,
    });
  }

  async #requireReady({ name }: LabNode): Promise<void> {
    this.#processes.requireRunning(`kubelet-${name}`);
    const node = await this.admin.get<{ status: { conditions: { type: string; status: string }[] } }>(
      `/api/v1/nodes/${name}`,
      { what: 'show the node', signal: never },
    );
    const ready = node.status.conditions.find(({ type }) => type === 'Ready');
    if (ready?.status !== 'True') throw new Error('The node is not ready.');
  }

  // --- agent-sandbox

  async #startAgentSandbox(): Promise<void> {
    const manifests = agentSandboxManifests();
    const crds = readdirSync(join(manifests, 'crds')).map((name) => join('crds', name));
    const others = [
      'controller.yaml',
      'extensions.yaml',
      'rbac.generated.yaml',
      'extensions-rbac.generated.yaml',
    ];
    for (const file of [...crds, ...others]) await this.#apply(readFileSync(join(manifests, file), 'utf8'));
    await this.#applyObjects(WEBHOOK);
    const token = await this.admin.create<{ status: { token: string } }>(
      '/api/v1/namespaces/agent-sandbox-system/serviceaccounts/agent-sandbox-controller/token',
      {
        what: 'make a token',
        body: {
          apiVersion: 'authentication.k8s.io/v1',
          kind: 'TokenRequest',
          spec: { expirationSeconds: 86_400 },
        },
        signal: never,
      },
    );
    const config = this.#keys.kubeconfig('asb', API, { token: token.status.token });
    this.#processes.start(
      'agent-sandbox',
      [
        ...[
          'nsenter',
          ...this.#inNetwork(),
          labProgram('agent-sandbox-controller'),
          '--leader-elect=false',
          '--extensions',
        ],
        ...['--metrics-bind-address=127.0.0.1:8080', '--health-probe-bind-address=127.0.0.1:8081'],
        `--webhook-cert-dir=${join(this.#run, 'asb-certs')}`,
      ],
      { ...process.env, KUBECONFIG: config },
    );
    await eventually('the controller of agent-sandbox was ready', () => {
      this.#processes.requireRunning('agent-sandbox');
      execFileSync('nsenter', [...this.#inNetwork(), 'curl', '-sf', 'http://127.0.0.1:8081/readyz'], {
        stdio: 'pipe',
      });
    });
  }

  /** The controller runs outside of the cluster, so its Deployment and Services are left out. */
  #apply(yaml: string): Promise<void> {
    const objects = loadAllYaml(yaml).filter((one) => one?.kind !== undefined);
    return this.#applyObjects(objects.filter(({ kind }) => kind !== 'Deployment' && kind !== 'Service'));
  }

  async #applyObjects(objects: readonly object[]): Promise<void> {
    const config = new KubeConfig();
    config.loadFromFile(this.kubeconfig);
    const api = KubernetesObjectApi.makeApiClient(config);
    for (const object of objects) {
      await eventually(
        'an object was made',
        () =>
          api.create(object as Parameters<typeof api.create>[0]).catch((thrown: { code?: number }) => {
            if (thrown.code !== 409) throw thrown;
          }),
        20_000,
      );
    }
  }

  async #deletePods(): Promise<void> {
    const pods = await this.admin.get<{ items: { metadata: { namespace: string } }[] }>('/api/v1/pods', {
      what: 'list the pods',
      signal: never,
    });
    for (const namespace of new Set(pods.items.map(({ metadata }) => metadata.namespace))) {
      const body = { gracePeriodSeconds: 0 };
      const path = `/api/v1/namespaces/${namespace}/pods`;
      await this.admin.remove(path, { what: 'delete the pods', body, signal: never });
    }
    const ended = () => {
      if (this.#nodes.some((node) => node.hasContainers())) throw new Error('some are left');
    };
    await eventually('the containers ended', ended, 10_000);
  }
}

const WEBHOOK = [
  {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'agent-sandbox-webhook-service', namespace: 'agent-sandbox-system' },
    spec: { ports: [{ name: 'webhook', port: 443, targetPort: 9443, protocol: 'TCP' }] },
  },
  {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: 'agent-sandbox-webhook-1',
      namespace: 'agent-sandbox-system',
      labels: { 'kubernetes.io/service-name': 'agent-sandbox-webhook-service' },
    },
    addressType: 'IPv4',
    ports: [{ name: 'webhook', port: 9443, protocol: 'TCP' }],
    endpoints: [{ addresses: [NODE_IP], conditions: { ready: true } }],
  },
];

function quietly(work: () => void): void {
  try {
    work();
  } catch {
    // What is to be removed is gone already.
  }
}
