/**
 * Builds a Kubernetes cluster for tests from Go modules, once for all clones on a machine: API server, controller manager,
 * scheduler, kubelet, etcd, containerd, and the controller of agent-sandbox. Packages of Debian are unpacked beside them.
 *
 * Each program appears in its place only when it is complete. A lock keeps two processes from building at once.
 */
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import {
  agentSandboxManifests,
  DEBIAN_PACKAGES,
  debianRoot,
  GO_PROGRAMS,
  LAB,
  labProgram,
  pauseProgram,
} from '../../packages/pods/testing/lab-programs.mjs';
import { findGo } from '../../packages/runtime-gvisor/src/binaries/build.mjs';
import {
  downloadEnvironment,
  everySecond,
  runBuild,
} from '../../packages/runtime-gvisor/src/machine-wide-build.mjs';

/** @typedef {import('../../packages/pods/testing/lab-programs.mjs').GoProgram} GoProgram */

/** The API server takes twelve minutes on a machine that is idle. At the lowest priority it may take much longer. */
const BUILD_MS = 3 * 60 * 60_000;

const PAUSE_SOURCE = `package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for one := range signals {
		if one != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			var status syscall.WaitStatus
			if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
`;

/** Builds what is missing. @param {(line: string) => void} say */
export async function buildKubernetesLab(say) {
  const go = requireGo();
  for (const name of Object.keys(GO_PROGRAMS)) await buildMissing(go, name, say);
  if (!existsSync(pauseProgram())) await buildPause(go);
  if (!existsSync(agentSandboxManifests())) await copyManifests(go);
  if (!existsSync(debianRoot())) unpackDebian();
}

/** The program that checks and installs the chart. @param {(line: string) => void} say */
export async function buildHelm(say) {
  await buildMissing(requireGo(), 'helm', say);
}

function requireGo() {
  const go = findGo(process.env['PATH'] ?? '');
  if (go === undefined) throw new Error('Go is not installed');
  mkdirSync(LAB, { recursive: true, mode: 0o755 });
  return go;
}

/** @param {string} go @param {string} name @param {(line: string) => void} say */
async function buildMissing(go, name, say) {
  const program = GO_PROGRAMS[name];
  if (program === undefined || existsSync(labProgram(name))) return;
  say(`building ${name} ${program.version}`);
  await buildProgram(go, name, program, say);
}

/**
 * @param {string} go
 * @param {string} name
 * @param {GoProgram} program
 * @param {(line: string) => void} say
 */
async function buildProgram(go, name, program, say) {
  await inPlace(dirname(labProgram(name)), async (place, made) => {
    await writeModule(go, place, program);
    let packages = 0;
    const progress = everySecond((/** @type {number} */ compiled) =>
      say(`${name}: ${compiled} packages compiled`),
    );
    const flags = ['-mod=mod', '-v', '-trimpath', '-ldflags', `-s -w ${versionFlags(program)}`];
    await run(go, ['build', ...flags, '-o', join(made, name), program.package], place, (text) => {
      packages += text.split('\n').filter((line) => line !== '' && !line.startsWith('go: ')).length;
      progress(packages);
    });
  });
}

/**
 * Kubernetes requires its staging modules at v0.0.0 and replaces them by directories. Outside of its own repository they are
 * modules with the version v0.<minor>.<patch>.
 * @param {string} go
 * @param {string} place
 * @param {GoProgram} program
 */
async function writeModule(go, place, { module, version, package: name }) {
  const source = `//go:build tools\n\npackage lab\n\nimport _ "${name}"\n`;
  writeFileSync(join(place, 'tools.go'), source);
  if (module !== 'k8s.io/kubernetes') {
    // With a Go version Go reads the requirements of requirements only where it needs them: some no longer exist.
    writeFileSync(join(place, 'go.mod'), `module lab\n\ngo 1.26.0\n\nrequire ${module} ${version}\n`);
    return;
  }
  // A requirement in this file would make Go look for the staging modules at v0.0.0 even to download it.
  writeFileSync(join(place, 'go.mod'), 'module lab\n');
  const about = JSON.parse(output(go, ['mod', 'download', '-json', `${module}@${version}`], place));
  const own = readFileSync(about.GoMod, 'utf8');
  const staging = [...own.matchAll(/^\s*(k8s\.io\/\S+) v0\.0\.0$/gm)].map((match) => match[1]);
  const replaced = staging.map((one) => `replace ${one} => ${one} ${version.replace(/^v1/, 'v0')}`);
  const goVersion = /^go .*$/m.exec(own)?.[0] ?? '';
  const text = `module lab\n\n${goVersion}\n\nrequire ${module} ${version}\n\n${replaced.join('\n')}\n`;
  writeFileSync(join(place, 'go.mod'), text);
}

/** Without them Kubernetes says that its version is v0.0.0. @param {GoProgram} program */
function versionFlags({ module, version }) {
  if (module !== 'k8s.io/kubernetes') return '';
  const [major = '', minor = ''] = version.slice(1).split('.');
  const of = 'k8s.io/component-base/version';
  return `-X ${of}.gitVersion=${version} -X ${of}.gitMajor=${major} -X ${of}.gitMinor=${minor}`;
}

/** @param {string} go */
async function buildPause(go) {
  await inPlace(dirname(pauseProgram()), async (place, made) => {
    writeFileSync(join(place, 'go.mod'), 'module pause\n');
    writeFileSync(join(place, 'main.go'), PAUSE_SOURCE);
    await run(go, ['build', '-ldflags', '-s -w', '-o', join(made, 'pause'), '.'], place);
  });
}

/** The custom resources and the roles of agent-sandbox. @param {string} go */
async function copyManifests(go) {
  await inPlace(agentSandboxManifests(), async (place, made) => {
    const { module, version } = GO_PROGRAMS['agent-sandbox-controller'] ?? { module: '', version: '' };
    writeFileSync(join(place, 'go.mod'), 'module lab\n');
    const about = JSON.parse(output(go, ['mod', 'download', '-json', `${module}@${version}`], place));
    cpSync(join(about.Dir, 'k8s'), made, { recursive: true });
    execFileSync('chmod', ['-R', 'u+w', made]);
  });
}

function unpackDebian() {
  const place = mkdtempSync(join(LAB, '.building-'));
  try {
    // apt drops its rights for downloads.
    execFileSync('chmod', ['755', place]);
    execFileSync('apt-get', ['download', ...DEBIAN_PACKAGES], { cwd: place, stdio: 'ignore' });
    const root = join(place, 'root');
    for (const file of readdirSync(place).filter((name) => name.endsWith('.deb'))) {
      execFileSync('dpkg-deb', ['-x', join(place, file), root]);
    }
    renameSync(root, debianRoot());
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

/**
 * Makes a directory that appears in its place only when it is complete.
 * @param {string} target
 * @param {(place: string, made: string) => Promise<void>} make
 */
async function inPlace(target, make) {
  const place = mkdtempSync(join(LAB, '.building-'));
  try {
    const made = join(place, 'made');
    mkdirSync(made);
    await make(place, made);
    rmSync(target, { recursive: true, force: true });
    renameSync(made, target);
  } finally {
    execFileSync('chmod', ['-R', 'u+w', place]);
    rmSync(place, { recursive: true, force: true });
  }
}

function environment() {
  return { ...downloadEnvironment(/^GO/), GOFLAGS: '-buildvcs=false', CGO_ENABLED: '0' };
}

/** @param {string} go @param {string[]} args @param {string} cwd @param {(text: string) => void} [onOutput] */
function run(go, args, cwd, onOutput = () => {}) {
  const lock = join(LAB, '.build.lock');
  return runBuild([go, ...args], { lock, cwd, env: environment(), timeoutMs: BUILD_MS, onOutput });
}

/** @param {string} go @param {string[]} args @param {string} cwd */
function output(go, args, cwd) {
  return execFileSync(go, args, { cwd, env: environment(), encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
}
