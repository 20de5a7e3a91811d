/**
 * Installs the system packages of each purpose: with apt-get as root, or else by printing the command to type and continuing
 * without them. On CI (`CI=true`) a missing package is a failure, because the checks must not pass with skipped tests.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { buildBase, findMachineBase } from '../../packages/runtime-gvisor/src/base/build-base.mjs';
import {
  buildRunsc,
  obstacleToBuilding,
  pinnedProgram,
} from '../../packages/runtime-gvisor/src/binaries/build.mjs';
import { commandOnPath } from './command-on-path.mjs';
import { findPostgres } from './postgresql.mjs';
import { fetchRunsc, hasUsableRunsc, KEYRING } from './runsc.mjs';

/**
 * @typedef {object} Need
 * @property {string} name
 * @property {string} why what does not work without it
 * @property {() => boolean} present
 * @property {string[]} packages Debian's names
 */

/** @type {Need} */
const POSTGRESQL = {
  name: 'PostgreSQL',
  why: 'without it the tests of the shared state store are skipped',
  present: () => findPostgres() !== undefined,
  packages: ['postgresql'],
};

/** @type {Need} */
const CHROMIUM = {
  name: 'Chromium',
  why: 'without it the tests in a real browser are skipped',
  present: () =>
    ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].some((path) =>
      existsSync(path),
    ),
  packages: ['chromium'],
};

/** @type {Need} */
const XFS = {
  name: 'mkfs.xfs',
  why: 'without it the tests on a file system with reflinks are skipped',
  present: () => !canRunGvisor() || commandOnPath('mkfs.xfs') !== undefined || existsSync('/sbin/mkfs.xfs'),
  packages: ['xfsprogs'],
};

/** @type {Need} */
const REGISTRY = {
  name: 'docker-registry',
  why: 'without it the tests of images in a registry are skipped',
  present: () => commandOnPath('docker-registry') !== undefined,
  packages: ['docker-registry'],
};

const WITHOUT_GVISOR = 'without it sandboxes are plain processes and forget their memory';

/** @param {string} command @param {string} debianPackage @param {string} [why] @returns {Need} */
function gvisorNeeds(command, debianPackage, why = WITHOUT_GVISOR) {
  return {
    name: command,
    why,
    // Only root can run gVisor.
    present: () => !canRunGvisor() || commandOnPath(command) !== undefined,
    packages: [debianPackage],
  };
}

/** @type {Need[]} */
const GVISOR = [
  gvisorNeeds('tini', 'tini'),
  gvisorNeeds('ip', 'iproute2'),
  gvisorNeeds('nft', 'nftables'),
  gvisorNeeds('mmdebstrap', 'mmdebstrap', 'without it sandboxes see the system directories of this machine'),
  {
    name: "Debian's keys",
    why: 'runsc is fetched from Debian and checked with them',
    present: () => !canRunGvisor() || existsSync(KEYRING) || hasUsableRunsc(),
    packages: ['debian-archive-keyring'],
  },
];

/** @type {{ start: Need[], test: Need[] }} */
const NEEDS = {
  start: GVISOR,
  test: [POSTGRESQL, CHROMIUM, XFS, REGISTRY, ...GVISOR],
};

export const PURPOSES = /** @type {(keyof typeof NEEDS)[]} */ (Object.keys(NEEDS));

/**
 * @param {string} word
 * @returns {word is keyof typeof NEEDS}
 */
export function isPurpose(word) {
  return Object.hasOwn(NEEDS, word);
}

/**
 * @param {keyof typeof NEEDS} purpose
 * @param {(line: string) => void} say
 * @returns {boolean} whether anything was missing
 */
export function installSystemPackages(purpose, say) {
  const missing = NEEDS[purpose].filter((need) => !need.present());
  if (missing.length === 0) return false;

  const packages = missing.flatMap((need) => need.packages);
  const obstacle = obstacleToInstalling() ?? tryToInstall(missing, purpose, say);
  if (obstacle === undefined) return true;

  for (const need of missing) say(`${need.name} is missing (${need.why})`);
  const typeThis = `sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages.join(' ')}`;
  if (process.env['CI'] === 'true') {
    throw new Error(`${namesOf(missing)} must be there on CI, but ${obstacle}. Type:\n  ${typeThis}`);
  }
  say(`not installed, because ${obstacle}. On Debian or Ubuntu, type:`);
  say(`  ${typeThis}`);
  return true;
}

/**
 * Fetches gVisor's runsc, which is not installed as a package.
 * @param {(line: string) => void} say
 * @returns {boolean} whether there was anything to do
 */
export function provideRunsc(say) {
  if (!canRunGvisor() || hasUsableRunsc()) return false;
  const obstacle = obstacleToInstalling() ?? tryToFetch(say);
  if (obstacle === undefined) return true;
  if (process.env['CI'] === 'true') throw new Error(`runsc must be there on CI, but ${obstacle}`);
  say(`no usable runsc (${WITHOUT_GVISOR}); none is fetched, because ${obstacle}`);
  return true;
}

/**
 * Builds the newer runsc for tests, where Go can build it. A server builds it by itself after its start.
 * @param {(line: string) => void} say
 * @returns {Promise<boolean>} whether there was anything to do
 */
export async function provideNewerRunsc(say) {
  if (!canRunGvisor() || process.env['TORPOR_SETUP'] === 'skip' || existsSync(pinnedProgram())) return false;
  const obstacle = obstacleToBuilding();
  if (obstacle !== undefined) {
    say(`gVisor: the tests use the runsc that there is; a newer one is not built, because ${obstacle}`);
    return true;
  }
  const started = Date.now();
  say('gVisor: building a newer runsc, once for this machine (about two minutes)');
  const program = await buildRunsc({
    onProgress: everySome(100, (count) => say(`gVisor: ${count} packages compiled`)),
  });
  say(`gVisor: built ${program}, ${((Date.now() - started) / 1000).toFixed(1)} s`);
  return true;
}

/**
 * Makes the root of `base` for tests. A server makes it by itself after its start.
 * @param {string} node the Node program for guests
 * @param {(line: string) => void} say
 * @returns {Promise<boolean>} whether there was anything to do
 */
export async function provideBase(node, say) {
  if (!canRunGvisor() || process.env['TORPOR_SETUP'] === 'skip' || findMachineBase() !== undefined)
    return false;
  const started = Date.now();
  say("base: making a root from Debian's packages, once for this machine (about a minute)");
  try {
    const { root } = await buildBase({ node, onProgress: (phase) => say(`base: ${phase}`) });
    say(`base: made ${root}, ${((Date.now() - started) / 1000).toFixed(1)} s`);
  } catch (error) {
    if (process.env['CI'] === 'true') throw error;
    const why = error instanceof Error ? error.message : String(error);
    say(`base: its tests are skipped, because no root could be made: ${why}`);
  }
  return true;
}

/** @param {number} step @param {(count: number) => void} tell @returns {(count: number) => void} */
function everySome(step, tell) {
  let told = 0;
  return (count) => {
    if (count < told + step) return;
    told = count;
    tell(count);
  };
}

/** @param {(line: string) => void} say */
function tryToFetch(say) {
  try {
    fetchRunsc(say);
    return !hasUsableRunsc() ? 'the one that was fetched does not run' : undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function canRunGvisor() {
  return process.platform === 'linux' && process.getuid?.() === 0;
}

/**
 * A server starts with the packages that are installed. Tests fail when a package could be installed.
 * @param {Need[]} missing
 * @param {keyof typeof NEEDS} purpose
 * @param {(line: string) => void} say
 * @returns {string | undefined} what has kept us from it
 */
function tryToInstall(missing, purpose, say) {
  try {
    install(
      missing.flatMap((need) => need.packages),
      say,
    );
    const still = missing.filter((need) => !need.present());
    if (still.length > 0) throw new Error(`apt-get has installed it, but it is not found: ${namesOf(still)}`);
    return undefined;
  } catch (error) {
    if (purpose === 'test' || !(error instanceof Error)) throw error;
    return error.message.split('\n', 2).join(': ');
  }
}

/** Why packages cannot be installed. */
function obstacleToInstalling() {
  if (process.env['TORPOR_SETUP'] === 'skip') return 'TORPOR_SETUP=skip';
  if (process.getuid?.() !== 0) return 'only root may';
  if (commandOnPath('apt-get') === undefined) return 'there is no apt-get here';
  return undefined;
}

/**
 * @param {string[]} packages
 * @param {(line: string) => void} say
 */
function install(packages, say) {
  const started = Date.now();
  say(`apt-get install ${packages.join(' ')}`);
  const allowed = packages.includes('postgresql') ? forbidMainCluster() : () => {};
  try {
    aptGet(['update', '-qq']);
    aptGet(['install', '-y', '-qq', '--no-install-recommends', ...packages]);
  } finally {
    allowed();
  }
  // Debian's package starts a registry for all the network. The tests start registries of their own.
  if (packages.includes('docker-registry')) spawnSync('systemctl', ['disable', '--now', 'docker-registry']);
  say(`system packages installed, ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

/** @param {string[]} args */
function aptGet(args) {
  const { status, error, stdout, stderr } = spawnSync(
    'apt-get',
    // Waits for another apt on this machine (unattended upgrades, a second setup) instead of failing.
    ['-o', 'DPkg::Lock::Timeout=300', ...args],
    {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    },
  );
  if (status === 0) return;
  const output = `${stdout ?? ''}${stderr ?? ''}`.trim();
  throw new Error(
    `apt-get ${args.join(' ')} failed${error ? `: ${error.message}` : ''}\n${output}\n` +
      'To go on without system packages, set TORPOR_SETUP=skip.',
  );
}

/**
 * Installs PostgreSQL without a database cluster. Debian's package creates a cluster and starts it as a service on the first
 * installation, and only the programs are needed. A temporary drop-in during the installation prevents that.
 * createcluster.conf itself belongs to the administrator, and a policy-rc.d would prevent only the start and leave a cluster
 * that starts at the next boot.
 * @returns {() => void} takes the drop-in away again
 */
function forbidMainCluster() {
  const dropIn = '/etc/postgresql-common/createcluster.d/torpor-setup.conf';
  mkdirSync(dirname(dropIn), { recursive: true });
  writeFileSync(
    dropIn,
    '# Only while Torpor installs PostgreSQL; may be deleted.\ncreate_main_cluster = false\n',
  );
  return () => rmSync(dropIn, { force: true });
}

/** @param {Need[]} needs */
function namesOf(needs) {
  return needs.map((need) => need.name).join(', ');
}
