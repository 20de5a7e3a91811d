/**
 * Fetches gVisor's runsc when the machine has none that is new enough.
 *
 * runsc is fetched once for all clones and servers of a machine, into /var/lib/torpor/runsc/<Debian's version>/runsc.
 * `find-runsc.ts` of the gVisor runtime looks there after the search path and the data directory. Fetched versions are kept,
 * because only the build that wrote a memory image can read it.
 *
 * runsc comes from Debian's archive. apt-get downloads the package with separate lists and sources, Debian's keys and the
 * mirror of the machine, and the package is unpacked without being installed. The system's sources and packages do not
 * change.
 */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { MACHINE_WIDE } from '../../packages/runtime-gvisor/src/binaries/build.mjs';
import { dayOf, isUsable } from '../../packages/runtime-gvisor/src/binaries/releases.mjs';
import { commandOnPath } from './command-on-path.mjs';

/** The first suite that has runsc is used. The release of the machine may be older, because the program is static. */
const SUITES = ['bookworm-backports', 'trixie'];
const DEBIAN_RELEASES = ['bullseye', 'bookworm', 'trixie', 'forky', 'oldstable', 'stable', 'testing'];
const PUBLIC_MIRROR = 'http://deb.debian.org/debian';
export const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';
const BOUND_MS = 120_000;

/**
 * Whether the server would find a usable runsc: on the path, in the data directory or machine-wide.
 * @param {{ path?: string, dataDir?: string, machineWide?: string }} [places]
 */
export function hasUsableRunsc({
  path = process.env['PATH'] ?? '',
  dataDir,
  machineWide = MACHINE_WIDE,
} = {}) {
  const data = dataDir ?? (process.env['TORPOR_DATA_DIR'] || join(homedir(), '.torpor'));
  const versions = existsSync(machineWide) ? readdirSync(machineWide) : [];
  const directories = [
    ...path.split(':'),
    join(data, 'gvisor', 'runsc'),
    ...versions.map((version) => join(machineWide, version)),
  ];
  return directories
    .flatMap((directory) => commandOnPath('runsc', directory) ?? [])
    .some((program) => isNewEnough(versionOf(program)));
}

/**
 * Throws when runsc cannot be fetched.
 * @param {(line: string) => void} say
 * @param {string} [machineWide]
 */
export function fetchRunsc(say, machineWide = MACHINE_WIDE) {
  const started = Date.now();
  const work = mkdtempSync(join(tmpdir(), 'torpor-runsc-'));
  try {
    const deb = download(work);
    const version = basename(deb).split('_')[1]?.replaceAll('%3a', ':') ?? 'unknown';
    run('dpkg', ['-x', deb, join(work, 'unpacked')]);
    const program = join(machineWide, version, 'runsc');
    mkdirSync(join(machineWide, version), { recursive: true });
    // Renamed into place, so that servers and other setups never see an incomplete directory.
    const arriving = `${program}.${process.pid}`;
    copyFileSync(join(work, 'unpacked', 'usr', 'bin', 'runsc'), arriving);
    chmodSync(arriving, 0o755);
    renameSync(arriving, program);
    say(`gVisor: fetched runsc ${version} to ${program}, ${((Date.now() - started) / 1000).toFixed(1)} s`);
  } finally {
    rmSync(work, { recursive: true });
  }
}

/**
 * The package from the first suite with a version that is new enough.
 * @param {string} work
 */
function download(work) {
  if (!existsSync(KEYRING)) throw new Error(`Debian's keys are missing (${KEYRING})`);
  /** @type {string[]} */
  const reasons = [];
  for (const suite of SUITES) {
    try {
      return downloadFrom(suite, join(work, suite));
    } catch (error) {
      reasons.push(`${suite}: ${error instanceof Error ? error.message : error}`);
    }
  }
  throw new Error(reasons.join('; '));
}

/** @param {string} suite @param {string} place */
function downloadFrom(suite, place) {
  for (const directory of ['lists/partial', 'cache/archives/partial', 'deb']) {
    mkdirSync(join(place, directory), { recursive: true });
  }
  const sources = join(place, 'sources.list');
  writeFileSync(sources, `deb [signed-by=${KEYRING}] ${debianMirror()} ${suite} main\n`);
  const own = [
    ['Dir::Etc::sourcelist', sources],
    ['Dir::Etc::sourceparts', '/nonexistent'],
    ['Dir::State::lists', join(place, 'lists')],
    ['Dir::Cache', join(place, 'cache')],
    ['Acquire::Languages', 'none'],
    // Short timeouts, so that a machine without a network fails soon.
    ['Acquire::Retries', '0'],
    ['Acquire::http::Timeout', '10'],
    ['Acquire::https::Timeout', '10'],
    // Without this a mirror that does not answer is only a warning and gives an empty list.
    ['APT::Update::Error-Mode', 'any'],
  ].flatMap(([name, value]) => ['-o', `${name}=${value}`]);

  run('apt-get', [...own, 'update', '-qq']);
  const [, version] =
    /^Version: (.*)$/m.exec(run('apt-cache', [...own, 'show', '--no-all-versions', 'runsc'])) ?? [];
  if (!isNewEnough(version)) throw new Error(`has runsc ${version}, which is too old`);
  run('apt-get', [...own, 'download', '-qq', `runsc=${version}`], join(place, 'deb'));
  const [deb] = readdirSync(join(place, 'deb'));
  if (deb === undefined) throw new Error('apt-get downloaded nothing');
  return join(place, 'deb', deb);
}

/** The Debian mirror of this machine, or the public one when the machine does not run Debian. */
function debianMirror() {
  // Without release information the list also contains archives that no `apt-get update` has read yet.
  const args = ['indextargets', '--no-release-info', '--format', '$(REPO_URI) $(COMPONENT) $(RELEASE)'];
  const { stdout } = spawnSync('apt-get', [...args, 'Identifier: Packages'], { encoding: 'utf8' });
  return mirrorAmong(stdout ?? '') ?? PUBLIC_MIRROR;
}

/**
 * Finds Debian's own archive among the archives of a machine. Other archives name their suites after Debian's releases
 * too, but have no updates suites.
 * @param {string} targets lines of address, component and release
 * @returns {string | undefined}
 */
export function mirrorAmong(targets) {
  const main = targets
    .split('\n')
    .map((line) => line.split(' '))
    .filter(([, component]) => component === 'main');
  /** @param {string | undefined} address @param {string} release */
  const serves = (address, release) => main.some(([uri, , suite]) => uri === address && suite === release);
  const found = main.find(
    ([address, , release = '']) => DEBIAN_RELEASES.includes(release) && serves(address, `${release}-updates`),
  );
  return found?.[0];
}

/** @param {string} program @returns {string | undefined} */
function versionOf(program) {
  const { stdout } = spawnSync(program, ['--version'], { encoding: 'utf8', timeout: 10_000 });
  return /^runsc version (\S+)$/m.exec(stdout ?? '')?.[1];
}

/** @param {string | undefined} version */
function isNewEnough(version) {
  return isUsable(dayOf(version));
}

/** @param {string} program @param {string[]} args @param {string} [cwd] */
function run(program, args, cwd) {
  const { status, error, stdout, stderr } = spawnSync(program, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: BOUND_MS,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' },
    ...(cwd === undefined ? {} : { cwd }),
  });
  if (status === 0) return stdout;
  const said =
    stderr
      ?.trim()
      .split('\n')
      .find((line) => line.startsWith('E:')) ?? error?.message;
  throw new Error(`${program} failed (${said ?? `status ${status}`})`);
}
