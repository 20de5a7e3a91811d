/** The OCI configuration of a guest's container, for runsc. A pure function. */
import type { Resources } from '@torpor/protocol';
import type { GuestTools } from './guest-tools.ts';
import {
  AGENT_SCRIPT,
  CREDENTIAL_FILE,
  GUEST_PATH,
  type GuestBind,
  PROCESSORS_DIR,
  SUDO_DIR,
  TOOLS,
  TOOLS_RUN,
} from './layout.ts';

export interface GuestSpec {
  /** The absolute path of the mounted root. */
  readonly rootfs: string;
  readonly hostname: string;
  readonly tools: GuestTools;
  /** The read-only mount of the tools on the host (`ReadOnlyBinds`). */
  readonly toolsSource: string;
  /** What the template shows of the host, in mount order. */
  readonly binds: readonly GuestBind[];
  /** The agent listens on this port of every address of the guest. */
  readonly agentPort: number;
  /** A path to the network namespace; null for no network but the loopback. */
  readonly networkNamespace: string | null;
  /** Null when runsc is not to use control groups. */
  readonly cgroup: {
    readonly path: string;
    /** Whether the host's kernel can limit swap, so that memory cannot grow into it. */
    readonly countsSwap: boolean;
  } | null;
  readonly resources: Resources;
  /** Whether members of the group sudo may act as root. */
  readonly sudo: boolean;
  /** Refuses raw and packet sockets by a seccomp filter, for a runsc that allows them in user namespaces. */
  readonly filterRawSockets: boolean;
  /** Whether set-user-ID programs in the root of the guest may change their user. Mounts of the host are `nosuid`. */
  readonly setuid: boolean;
  readonly annotations?: Readonly<Record<string, string>>;
}

const MIB = 1024 * 1024;
const CPU_PERIOD_US = 100_000;
const OPEN_FILES = 65_536;
/** When the host runs out of memory, guests are killed before the server. */
const OOM_SCORE = 500;

/** The sentry has host processes of its own, beside the two for each process of the guest. */
const SENTRY_PROCESSES = 256;

/** Few threads and a small heap make a small memory image. SIGUSR1 must not start a debugger. */
const NODE_FLAGS = [
  '--single-threaded',
  '--v8-pool-size=0',
  '--max-semi-space-size=1',
  '--expose-gc',
  '--disable-sigusr1',
];

/**
 * The capabilities of root in a guest. They do not include raw sockets, devices and network settings. CAP_SYS_ADMIN is
 * included because the agent needs it to change the host name; it applies to the guest's own kernel only.
 */
const CAPABILITIES = [
  'CAP_AUDIT_WRITE',
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_NET_BIND_SERVICE',
  'CAP_SETFCAP',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_ADMIN',
  'CAP_SYS_CHROOT',
  'CAP_SYS_PTRACE',
];

const [AF_INET, AF_INET6, AF_PACKET] = [2, 10, 17];
const SOCK_RAW = 3;
/** The other bits of a socket's type are flags. */
const SOCKET_TYPE_MASK = 0xf;

/** A program that reads the guest's packets would read the credentials that server and agent exchange. */
const WITHOUT_RAW_SOCKETS = {
  defaultAction: 'SCMP_ACT_ALLOW',
  syscalls: [
    refusedSocket([{ index: 0, value: AF_PACKET, op: 'SCMP_CMP_EQ' }]),
    ...[AF_INET, AF_INET6].map((family) =>
      refusedSocket([
        { index: 0, value: family, op: 'SCMP_CMP_EQ' },
        { index: 1, value: SOCKET_TYPE_MASK, valueTwo: SOCK_RAW, op: 'SCMP_CMP_MASKED_EQ' },
      ]),
    ),
  ],
};

function refusedSocket(args: readonly Readonly<Record<string, unknown>>[]) {
  return { names: ['socket'], action: 'SCMP_ACT_ERRNO', args };
}

interface Mount {
  readonly destination: string;
  readonly type: string;
  readonly source: string;
  readonly options: readonly string[];
}

export function ociSpec(guest: GuestSpec) {
  return {
    ociVersion: '1.0.2',
    hostname: guest.hostname,
    root: { path: guest.rootfs, readonly: false },
    process: processOf(guest),
    mounts: mountsOf(guest),
    linux: {
      namespaces: namespacesOf(guest),
      ...(guest.filterRawSockets ? { seccomp: WITHOUT_RAW_SOCKETS } : {}),
      ...(guest.cgroup === null ? {} : { cgroupsPath: guest.cgroup.path, resources: limitsOf(guest) }),
    },
    annotations: { ...guest.annotations },
  };
}

function processOf({ tools, agentPort, sudo, setuid, resources }: GuestSpec) {
  const hardFiles = { type: 'RLIMIT_NOFILE', hard: OPEN_FILES * 16, soft: OPEN_FILES };
  const processes = resources.processes;
  return {
    terminal: false,
    user: { uid: 0, gid: 0 },
    args: [
      ...tools.init,
      ...tools.loader,
      `${TOOLS}/node`,
      ...NODE_FLAGS,
      AGENT_SCRIPT,
      '--listen',
      `0.0.0.0:${agentPort}`,
      '--own-machine',
      '--credential-file',
      CREDENTIAL_FILE,
      '--processors-dir',
      PROCESSORS_DIR,
      ...(sudo ? ['--sudo-dir', SUDO_DIR] : []),
    ],
    // Nothing of the server's environment: every process of a guest can read this.
    env: [`PATH=${GUEST_PATH}`, 'HOME=/root', 'LANG=C.UTF-8'],
    cwd: '/',
    noNewPrivileges: !setuid,
    oomScoreAdj: OOM_SCORE,
    capabilities: {
      bounding: CAPABILITIES,
      effective: CAPABILITIES,
      permitted: CAPABILITIES,
      inheritable: [],
      ambient: [],
    },
    rlimits: [
      hardFiles,
      { type: 'RLIMIT_CORE', hard: 0, soft: 0 },
      ...(processes === undefined ? [] : [{ type: 'RLIMIT_NPROC', hard: processes, soft: processes }]),
    ],
  };
}

function mountsOf({ toolsSource, binds }: GuestSpec): Mount[] {
  return [
    mount('/proc', 'proc', ['nosuid', 'noexec', 'nodev']),
    mount('/dev', 'tmpfs', ['nosuid', 'mode=755', 'size=65536k']),
    mount('/dev/pts', 'devpts', ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5']),
    mount('/dev/shm', 'tmpfs', ['nosuid', 'noexec', 'nodev', 'mode=1777']),
    mount('/sys', 'sysfs', ['nosuid', 'noexec', 'nodev', 'ro']),
    ...binds.map(readOnlyBind),
    readOnlyBind({ source: toolsSource, destination: TOOLS }),
    mount(TOOLS_RUN, 'tmpfs', ['nosuid', 'noexec', 'nodev', 'mode=755', 'size=1024k']),
  ];
}

function mount(destination: string, type: string, options: readonly string[]): Mount {
  return { destination, type, source: type, options };
}

function readOnlyBind({ source, destination }: GuestBind): Mount {
  return { destination, type: 'bind', source, options: ['bind', 'ro', 'nosuid', 'nodev'] };
}

function namespacesOf({ networkNamespace }: GuestSpec) {
  const own = ['pid', 'ipc', 'uts', 'mount', 'cgroup'].map((type) => ({ type }));
  const path = networkNamespace === null ? {} : { path: networkNamespace };
  return [...own, { type: 'network', ...path }];
}

/** The same for both versions of control groups: runsc translates them. */
function limitsOf({ resources, cgroup }: GuestSpec) {
  const { memoryMb, cpus, processes } = resources;
  const limit = memoryMb === undefined ? undefined : memoryMb * MIB;
  return {
    ...(limit === undefined ? {} : { memory: { limit, ...(cgroup?.countsSwap ? { swap: limit } : {}) } }),
    ...(cpus === undefined
      ? {}
      : { cpu: { period: CPU_PERIOD_US, quota: Math.max(1000, Math.round(cpus * CPU_PERIOD_US)) } }),
    ...(processes === undefined ? {} : { pids: { limit: 2 * processes + SENTRY_PROCESSES } }),
  };
}
