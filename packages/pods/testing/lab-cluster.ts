/**
 * A Kubernetes cluster with one node for tests: etcd, API server, controller manager, scheduler, containerd, kubelet and the
 * controller of agent-sandbox, in a network and a mount namespace of their own. `npm run lab:setup` builds the programs.
 *
 * What it does not have: DNS, kube-proxy, enforced network policies.
 */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer, connect as dial, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { KubeConfig, KubernetesObjectApi, loadAllYaml } from '@kubernetes/client-node';
import { Cluster } from '../src/cluster.ts';
import { writeLabImages } from './lab-images.ts';
import { type LabKeys, makeLabKeys } from './lab-keys.ts';
import { eventually, LabProcesses } from './lab-processes.ts';
import { agentSandboxManifests, debianRoot, labProgram } from './lab-programs.mjs';
import { LabVolumes } from './lab-volumes.ts';

const NODE_IP = '10.66.0.1';
const NODE = 'node1';
const API = `https://${NODE_IP}:6443`;
const HIERARCHIES = ['cpu', 'cpuacct', 'cpuset', 'memory', 'devices', 'freezer', 'blkio', 'pids', 'systemd'];
const never = new AbortController().signal;

export interface LabCluster {
  /** A kubeconfig of an administrator, through an address of the loopback. */
  readonly kubeconfig: string;
  readonly admin: Cluster;
  /** The directory for volumes of the node. */
  readonly volumes: string;
  /** Stops and continues a process: apiserver, kubelet, kcm, sched, agent-sandbox. */
  signal(name: string, signal: NodeJS.Signals): void;
  /** Ends the API server at once, and starts it again on the same data. */
  restartApiServer(whileDown: () => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

export async function startLabCluster({ agentSandbox = true } = {}): Promise<LabCluster> {
  const lab = new Lab();
  try {
    await lab.start(agentSandbox);
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
  readonly #door = createServer((client) => this.#relay(client));
  readonly volumes: string;
  #provisioner: LabVolumes | undefined;
  kubeconfig = '';
  admin!: Cluster;

  constructor() {
    for (const name of ['pki', 'cni', 'bin', 'podlogs', 'volumes', 'images'])
      mkdirSync(join(this.#run, name));
    this.#keys = makeLabKeys(join(this.#run, 'pki'));
    this.volumes = join(this.#run, 'volumes');
  }

  async start(agentSandbox: boolean): Promise<void> {
    this.#makeNetwork();
    await this.#makeMountNamespace();
    this.#makeControlGroups();
    this.#writeKeys();
    this.#startEtcd();
    this.#startApiServer();
    const images = writeLabImages(join(this.#run, 'images'));
    await this.#openDoor();
    await this.#startContainerd(await images);
    await this.#untilApiAnswers();
    this.#startControllers();
    this.#startKubelet();
    await eventually('the node was ready', () => this.#requireReadyNode());
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
    for (const name of ['kubelet', 'containerd', 'apiserver', 'etcd', 'relay'])
      await this.#processes.stop(name);
    this.#killLeftovers();
    await this.#processes.stop('holder');
    this.#door.close();
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
    this.#ip('link', 'set', 'node0', 'up');
    this.#ip('route', 'add', 'default', 'via', NODE_IP, 'dev', 'node0');
    execFileSync('nsenter', [...this.#inNetwork(), 'sysctl', '-qw', 'net.ipv4.ip_forward=1']);
  }

  #inNetwork(): string[] {
    return [`--net=/run/netns/${this.#namespace}`];
  }

  /** Mounts are shared inside and none of them leaks out; paths that programs fix are private. */
  async #makeMountNamespace(): Promise<void> {
    for (const path of ['/run/containerd', '/var/log/containers']) mkdirSync(path, { recursive: true });
    const ready = join(this.#run, 'holder.ok');
    const script =
      'mount --make-rshared / && mount -t tmpfs tmpfs /run/containerd && mount -t tmpfs tmpfs /var/log/containers && ' +
      `touch ${ready} && exec sleep infinity`;
    const inside = ['unshare', '--mount', '--propagation', 'private', 'bash', '-c', script];
    this.#processes.start('holder', ['nsenter', ...this.#inNetwork(), ...inside]);
    await eventually('the mount namespace', () => {
      if (!existsSync(ready)) throw new Error('not yet');
    });
  }

  #makeControlGroups(): void {
    for (const name of HIERARCHIES) mkdirSync(this.#group(name), { recursive: true });
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      writeFileSync(join(this.#group('cpuset'), file), readFileSync(`/sys/fs/cgroup/cpuset/${file}`));
    }
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
    certificate('apiserver', '/CN=kube-apiserver', `${names},IP:127.0.0.1,IP:${NODE_IP},IP:10.96.0.1`);
    certificate('admin', '/O=system:masters/CN=admin');
    certificate('kubelet-client', '/O=system:masters/CN=apiserver-kubelet-client');
    certificate('kcm', '/CN=system:kube-controller-manager');
    certificate('sched', '/CN=system:kube-scheduler');
    certificate(NODE, `/O=system:nodes/CN=system:node:${NODE}`, `DNS:${NODE},IP:${NODE_IP}`);
    for (const name of ['kcm', 'sched', NODE]) this.#keys.kubeconfig(name, API, this.#userOf(name));
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
    const relay = join(import.meta.dirname, 'lab-relay.mjs');
    const command = [process.execPath, relay, this.#socket(), `${NODE_IP}:6443`];
    this.#processes.start('relay', ['nsenter', ...this.#inNetwork(), ...command]);
    this.#door.listen(0, '127.0.0.1');
    await new Promise((resolve) => this.#door.once('listening', resolve));
    this.#door.unref();
    const { port } = this.#door.address() as AddressInfo;
    this.kubeconfig = this.#keys.kubeconfig('admin', `https://127.0.0.1:${port}`, this.#userOf('admin'));
    this.admin = new Cluster({ kubeconfig: this.kubeconfig, requestMs: 10_000 });
  }

  #socket(): string {
    return join(this.#run, 'api.sock');
  }

  #relay(client: Socket): void {
    const server = dial(this.#socket());
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

  // --- the node

  #nodeEnvironment(): NodeJS.ProcessEnv {
    const root = debianRoot();
    const libraries = join(root, 'usr/lib/x86_64-linux-gnu');
    const programs = [
      join(this.#run, 'bin'),
      ...['containerd', 'containerd-shim-runc-v2', 'ctr'].map((name) => dirname(labProgram(name))),
      join(root, 'usr/sbin'),
      join(root, 'usr/bin'),
      process.env['PATH'],
    ];
    return {
      PATH: programs.join(':'),
      XTABLES_LIBDIR: join(libraries, 'xtables'),
      LD_LIBRARY_PATH: libraries,
      HOME: '/root',
    };
  }

  #onNode(): string[] {
    return ['nsenter', '-t', String(this.#processes.pid('holder')), '--mount', '--net'];
  }

  async #startContainerd(images: readonly string[]): Promise<void> {
    const root = debianRoot();
    for (const name of [
      'iptables',
      'iptables-save',
      'iptables-restore',
      'ip6tables',
      'ip6tables-save',
      'ip6tables-restore',
    ])
      symlinkSync(join(root, 'usr/sbin/xtables-nft-multi'), join(this.#run, 'bin', name));
    const bridge = {
      ...{ type: 'bridge', bridge: 'cni0', isGateway: true, ipMasq: false, hairpinMode: true },
      ipam: {
        type: 'host-local',
        dataDir: join(this.#run, 'cni-ipam'),
        ranges: [[{ subnet: '10.67.0.0/16' }]],
        routes: [{ dst: '0.0.0.0/0' }],
      },
    };
    const network = { cniVersion: '1.0.0', name: 'podnet', plugins: [bridge] };
    writeFileSync(join(this.#run, 'cni', '10-bridge.conflist'), JSON.stringify(network));
    writeFileSync(join(this.#run, 'containerd.toml'), this.#containerdConfig(root));
    const socket = join(this.#run, 'containerd.sock');
    this.#processes.start(
      'containerd',
      [...this.#onNode(), labProgram('containerd'), '-c', join(this.#run, 'containerd.toml')],
      this.#nodeEnvironment(),
    );
    const ctr = (...args: string[]) => {
      const [program = '', ...rest] = [...this.#onNode(), labProgram('ctr'), '-a', socket, ...args];
      execFileSync(program, rest, { env: this.#nodeEnvironment(), stdio: 'pipe' });
    };
    await eventually('containerd answered', () => {
      this.#processes.requireRunning('containerd');
      ctr('version');
    });
    for (const image of images) ctr('-n', 'k8s.io', 'images', 'import', image);
  }

  /** Lowering the score of the out-of-memory killer needs a capability that a container often lacks. */
  #containerdConfig(root: string): string {
    const runtime = `plugins.'io.containerd.cri.v1.runtime'`;
    return `version = 3
root = "${this.#run}/containerd/root"
state = "${this.#run}/containerd/state"
[grpc]
  address = "${this.#run}/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "local.test/pause:1"
[${runtime}]
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  [${runtime}.cni]
    bin_dirs = ["${root}/usr/lib/cni"]
    conf_dir = "${this.#run}/cni"
  [${runtime}.containerd]
    default_runtime_name = "runc"
    [${runtime}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [${runtime}.containerd.runtimes.runc.options]
        BinaryName = "${root}/usr/sbin/runc"
        SystemdCgroup = false
`;
  }

  #startKubelet(): void {
    writeFileSync(join(this.#run, 'resolv.conf'), 'nameserver 127.0.0.1\n');
    const config = {
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      kind: 'KubeletConfiguration',
      ...{ address: NODE_IP, port: 10250, readOnlyPort: 0, healthzBindAddress: '127.0.0.1' },
      ...{
        failCgroupV1: false,
        cgroupDriver: 'cgroupfs',
        cgroupRoot: `/${this.#namespace}`,
        failSwapOn: false,
      },
      containerRuntimeEndpoint: `unix://${this.#run}/containerd.sock`,
      authentication: {
        anonymous: { enabled: false },
        webhook: { enabled: true },
        x509: { clientCAFile: this.#key('ca.crt') },
      },
      authorization: { mode: 'Webhook' },
      ...{ tlsCertFile: this.#key(`${NODE}.crt`), tlsPrivateKeyFile: this.#key(`${NODE}.key`) },
      ...{
        clusterDomain: 'cluster.local',
        clusterDNS: ['10.96.0.10'],
        resolvConf: `${this.#run}/resolv.conf`,
      },
      ...{ podLogsDir: `${this.#run}/podlogs`, maxPods: 110 },
      ...{ imageGCHighThresholdPercent: 100, imageGCLowThresholdPercent: 99 },
      evictionHard: { 'memory.available': '100Mi' },
      // A lost node is noticed by its lease.
      nodeLeaseDurationSeconds: 10,
    };
    writeFileSync(join(this.#run, 'kubelet.yaml'), JSON.stringify(config));
    this.#processes.start(
      'kubelet',
      [
        ...[...this.#onNode(), labProgram('kubelet'), `--config=${this.#run}/kubelet.yaml`],
        ...[`--kubeconfig=${this.#key(`${NODE}.kubeconfig`)}`, `--root-dir=${this.#run}/kubelet`],
        ...[`--hostname-override=${NODE}`, `--node-ip=${NODE_IP}`],
      ],
      this.#nodeEnvironment(),
    );
  }

  async #requireReadyNode(): Promise<void> {
    this.#processes.requireRunning('kubelet');
    const node = await this.admin.get<{ status: { conditions: { type: string; status: string }[] } }>(
      `/api/v1/nodes/${NODE}`,
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
    const tasks = join(this.#run, 'containerd/state/io.containerd.runtime.v2.task/k8s.io');
    await eventually(
      'the containers ended',
      () => {
        if (existsSync(tasks) && readdirSync(tasks).length > 0) throw new Error('some are left');
      },
      10_000,
    );
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
