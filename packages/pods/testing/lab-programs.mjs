/** The programs of the Kubernetes lab and where they are: `npm run lab:setup` builds them, once for all clones on a machine. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

export const LAB = '/var/lib/torpor/lab';

const KUBERNETES = 'v1.36.3';
const CONTAINERD = 'v2.4.2';
const AGENT_SANDBOX = 'v0.5.6';

/**
 * `module` is built from its own go.mod; `package` is the program in it.
 * @typedef {{ version: string, module: string, package: string }} GoProgram
 * @type {Readonly<Record<string, GoProgram>>}
 */
export const GO_PROGRAMS = {
  etcd: { version: 'v3.7.3', module: 'go.etcd.io/etcd/server/v3', package: 'go.etcd.io/etcd/server/v3' },
  'kube-apiserver': kubernetes('kube-apiserver'),
  containerd: containerd('containerd'),
  ctr: containerd('ctr'),
  'containerd-shim-runc-v2': containerd('containerd-shim-runc-v2'),
  kubelet: kubernetes('kubelet'),
  'kube-scheduler': kubernetes('kube-scheduler'),
  'kube-controller-manager': kubernetes('kube-controller-manager'),
  'agent-sandbox-controller': {
    version: AGENT_SANDBOX,
    module: 'sigs.k8s.io/agent-sandbox',
    package: 'sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller',
  },
  helm: { version: 'v3.22.0', module: 'helm.sh/helm/v3', package: 'helm.sh/helm/v3/cmd/helm' },
};

/** Not needed by a cluster. */
const TOOLS = ['helm'];

/** @param {string} name @returns {GoProgram} */
function kubernetes(name) {
  return { version: KUBERNETES, module: 'k8s.io/kubernetes', package: `k8s.io/kubernetes/cmd/${name}` };
}

/** @param {string} name @returns {GoProgram} */
function containerd(name) {
  const module = 'github.com/containerd/containerd/v2';
  return { version: CONTAINERD, module, package: `${module}/cmd/${name}` };
}

/** Packages of Debian that are unpacked and not installed. */
export const DEBIAN_PACKAGES = [
  'runc',
  'containernetworking-plugins',
  'busybox-static',
  'iptables',
  'conntrack',
  'libnfnetlink0',
  'libnetfilter-conntrack3',
  'libip6tc2',
  'libip4tc2',
  'libxtables12',
  'libnftnl11',
  'libmnl0',
];

/** The path of a program, whether it is built or not. @param {string} name @param {string} [lab] */
export function labProgram(name, lab = LAB) {
  return join(lab, `${name}-${GO_PROGRAMS[name]?.version}`, name);
}

/** The directory with the unpacked packages of Debian. @param {string} [lab] */
export function debianRoot(lab = LAB) {
  return join(lab, 'debian-1');
}

/** The manifests of agent-sandbox. @param {string} [lab] */
export function agentSandboxManifests(lab = LAB) {
  return join(lab, `agent-sandbox-manifests-${AGENT_SANDBOX}`);
}

/** The program that the first container of a pod runs. @param {string} [lab] */
export function pauseProgram(lab = LAB) {
  return join(lab, 'pause-1', 'pause');
}

export function helmProgram() {
  return labProgram('helm');
}

/** Why the lab cannot be used; null when it can. @param {readonly string[]} names @returns {string | null} */
export function whyNoLab(names) {
  const missing = names.find((name) => !existsSync(labProgram(name)));
  if (missing !== undefined) return `${missing} of the lab is not built (npm run lab:setup)`;
  return null;
}

/** Why no cluster with a node can be started. */
export function whyNoCluster() {
  if (process.getuid?.() !== 0) return 'a cluster needs root';
  const parts = [debianRoot(), agentSandboxManifests(), pauseProgram()].find((path) => !existsSync(path));
  const programs = Object.keys(GO_PROGRAMS).filter((name) => !TOOLS.includes(name));
  return whyNoLab(programs) ?? (parts === undefined ? null : `${parts} is not there (npm run lab:setup)`);
}
