/** One node of a lab cluster: containerd and a kubelet in a mount namespace of their own. All nodes share one network. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { eventually, type LabProcesses } from './lab-processes.ts';
import { debianRoot, labProgram } from './lab-programs.mjs';

export const HIERARCHIES = [
  'cpu',
  'cpuacct',
  'cpuset',
  'memory',
  'devices',
  'freezer',
  'blkio',
  'pids',
  'systemd',
];
const IPTABLES = [
  'iptables',
  'iptables-save',
  'iptables-restore',
  'ip6tables',
  'ip6tables-save',
  'ip6tables-restore',
];

interface NodeOptions {
  readonly name: string;
  readonly ip: string;
  /** From 1. */
  readonly index: number;
  /** The directory of the lab. */
  readonly run: string;
  /** The control group of the node's pods, below the root of each hierarchy. */
  readonly group: string;
  readonly inNetwork: readonly string[];
  /** The directory of the keys; it has a certificate and a kubeconfig of the node. */
  readonly keys: string;
  readonly processes: LabProcesses;
}

export class LabNode {
  readonly #options: NodeOptions;
  /** Directory of the node. */
  readonly #own: string;

  constructor(options: NodeOptions) {
    this.#options = options;
    this.#own = join(options.run, options.name);
    for (const name of ['bin', 'podlogs']) mkdirSync(join(this.#own, name), { recursive: true });
  }

  get name(): string {
    return this.#options.name;
  }

  async startContainers(images: readonly string[]): Promise<void> {
    await this.#makeMountNamespace();
    this.#makeControlGroups();
    await this.#startContainerd();
    for (const image of images) this.importImage(image);
  }

  importImage(archive: string): void {
    this.#ctr('-n', 'k8s.io', 'images', 'import', archive);
  }

  hasContainers(): boolean {
    const tasks = join(this.#own, 'containerd/state/io.containerd.runtime.v2.task/k8s.io');
    return existsSync(tasks) && readdirSync(tasks).length > 0;
  }

  async stopServices(): Promise<void> {
    for (const name of ['kubelet', 'containerd']) await this.#options.processes.stop(this.#process(name));
  }

  /** Ends the mount namespace, and so the mounts in it. */
  async stop(): Promise<void> {
    await this.#options.processes.stop(this.#process('holder'));
  }

  #process(program: string): string {
    return `${program}-${this.name}`;
  }

  /** Mounts are shared inside and none of them leaks out; paths that programs fix are private. */
  async #makeMountNamespace(): Promise<void> {
    for (const path of ['/run/containerd', '/var/log/containers']) mkdirSync(path, { recursive: true });
    const ready = join(this.#own, 'holder.ok');
    const script =
      'mount --make-rshared / && mount -t tmpfs tmpfs /run/containerd && mount -t tmpfs tmpfs /var/log/containers && ' +
      `touch ${ready} && exec sleep infinity`;
    const inside = ['unshare', '--mount', '--propagation', 'private', 'bash', '-c', script];
    const { processes, inNetwork } = this.#options;
    processes.start(this.#process('holder'), ['nsenter', ...inNetwork, ...inside]);
    await eventually('the mount namespace', () => {
      if (!existsSync(ready)) throw new Error('not yet');
    });
  }

  #makeControlGroups(): void {
    const { group } = this.#options;
    for (const name of HIERARCHIES) mkdirSync(`/sys/fs/cgroup/${name}/${group}`, { recursive: true });
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      const value = readFileSync(`/sys/fs/cgroup/cpuset/${file}`);
      // The group of the lab, then that of the node in it.
      for (const at of [dirname(group), group]) writeFileSync(`/sys/fs/cgroup/cpuset/${at}/${file}`, value);
    }
  }

  #environment(): NodeJS.ProcessEnv {
    const root = debianRoot();
    const libraries = join(root, 'usr/lib/x86_64-linux-gnu');
    const programs = [
      join(this.#own, 'bin'),
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

  #inside(): string[] {
    const { processes } = this.#options;
    return ['nsenter', '-t', String(processes.pid(this.#process('holder'))), '--mount', '--net'];
  }

  #ctr(...args: string[]): void {
    const socket = join(this.#own, 'containerd.sock');
    const [program = '', ...rest] = [...this.#inside(), labProgram('ctr'), '-a', socket, ...args];
    execFileSync(program, rest, { env: this.#environment(), stdio: 'pipe' });
  }

  async #startContainerd(): Promise<void> {
    const { run, processes } = this.#options;
    const root = debianRoot();
    for (const name of IPTABLES)
      symlinkSync(join(root, 'usr/sbin/xtables-nft-multi'), join(this.#own, 'bin', name));
    const bridge = {
      ...{ type: 'bridge', bridge: 'cni0', isGateway: true, ipMasq: false, hairpinMode: true },
      ipam: {
        type: 'host-local',
        // One for all nodes, so that no two pods get the same address.
        dataDir: join(run, 'cni-ipam'),
        ranges: [[{ subnet: '10.67.0.0/16' }]],
        routes: [{ dst: '0.0.0.0/0' }],
      },
    };
    const network = { cniVersion: '1.0.0', name: 'podnet', plugins: [bridge] };
    writeFileSync(join(run, 'cni', '10-bridge.conflist'), JSON.stringify(network));
    const config = join(this.#own, 'containerd.toml');
    writeFileSync(config, this.#containerdConfig(root));
    const name = this.#process('containerd');
    processes.start(name, [...this.#inside(), labProgram('containerd'), '-c', config], this.#environment());
    await eventually('containerd answered', () => {
      processes.requireRunning(name);
      this.#ctr('version');
    });
  }

  /** Lowering the score of the out-of-memory killer needs a capability that a container often lacks. */
  #containerdConfig(root: string): string {
    const runtime = `plugins.'io.containerd.cri.v1.runtime'`;
    return `version = 3
root = "${this.#own}/containerd/root"
state = "${this.#own}/containerd/state"
[grpc]
  address = "${this.#own}/containerd.sock"
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
    conf_dir = "${this.#options.run}/cni"
  [${runtime}.containerd]
    default_runtime_name = "runc"
    [${runtime}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [${runtime}.containerd.runtimes.runc.options]
        BinaryName = "${root}/usr/sbin/runc"
        SystemdCgroup = false
`;
  }

  startKubelet(): void {
    const { name, ip, index, keys, group, processes } = this.#options;
    const key = (file: string) => join(keys, file);
    writeFileSync(join(this.#own, 'resolv.conf'), 'nameserver 127.0.0.1\n');
    const config = {
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      kind: 'KubeletConfiguration',
      ...{ address: ip, port: 10250, readOnlyPort: 0 },
      ...{ healthzBindAddress: '127.0.0.1', healthzPort: 10_300 + index },
      ...{ failCgroupV1: false, cgroupDriver: 'cgroupfs', cgroupRoot: `/${group}`, failSwapOn: false },
      containerRuntimeEndpoint: `unix://${this.#own}/containerd.sock`,
      authentication: {
        anonymous: { enabled: false },
        webhook: { enabled: true },
        x509: { clientCAFile: key('ca.crt') },
      },
      authorization: { mode: 'Webhook' },
      ...{ tlsCertFile: key(`${name}.crt`), tlsPrivateKeyFile: key(`${name}.key`) },
      ...{
        clusterDomain: 'cluster.local',
        clusterDNS: ['10.96.0.10'],
        resolvConf: `${this.#own}/resolv.conf`,
      },
      ...{ podLogsDir: `${this.#own}/podlogs`, maxPods: 110 },
      ...{ imageGCHighThresholdPercent: 100, imageGCLowThresholdPercent: 99 },
      evictionHard: { 'memory.available': '100Mi' },
      // A lost node is noticed by its lease.
      nodeLeaseDurationSeconds: 10,
    };
    const file = join(this.#own, 'kubelet.yaml');
    writeFileSync(file, JSON.stringify(config));
    processes.start(
      this.#process('kubelet'),
      [
        ...[...this.#inside(), labProgram('kubelet'), `--config=${file}`],
        ...[`--kubeconfig=${key(`${name}.kubeconfig`)}`, `--root-dir=${this.#own}/kubelet`],
        ...[`--hostname-override=${name}`, `--node-ip=${ip}`],
      ],
      this.#environment(),
    );
  }
}
