/**
 * What each purpose needs from the system, and how it gets there: by apt-get when we are root, else by
 * telling exactly what to type and going on without. On CI (`CI=true`) going on without is a failure,
 * because there the checks must not pass with tests left out.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { commandOnPath } from './command-on-path.mjs';
import { findPostgres } from './postgresql.mjs';

/**
 * @typedef {object} Need
 * @property {string} name
 * @property {string} why what is missing without it, for the reader of the message
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

/** @type {{ start: Need[], test: Need[] }} */
const NEEDS = {
  start: [],
  test: [POSTGRESQL],
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
  const obstacle = obstacleToInstalling();
  if (obstacle === undefined) {
    install(packages, say);
    const still = missing.filter((need) => !need.present());
    if (still.length > 0) throw new Error(`installed, but not found: ${namesOf(still)}`);
    return true;
  }

  for (const need of missing) say(`${need.name} is missing (${need.why})`);
  const typeThis = `sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages.join(' ')}`;
  if (process.env['CI'] === 'true') {
    throw new Error(`${namesOf(missing)} must be there on CI, but ${obstacle}. Type:\n  ${typeThis}`);
  }
  say(`not installed, because ${obstacle}. On Debian or Ubuntu, type:`);
  say(`  ${typeThis}`);
  return true;
}

/** Why we may not or cannot install, in words. */
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
  say(`system packages installed, ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

/** @param {string[]} args */
function aptGet(args) {
  const { status, error, stdout, stderr } = spawnSync(
    'apt-get',
    // Another apt on this machine (unattended upgrades, a second setup) is waited for, not failed on.
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
 * Debian's PostgreSQL makes a database cluster and starts it as a service when it is first installed.
 * We want only the programs. A drop-in that is there during the installation and gone afterwards is the
 * smallest way to say so: createcluster.conf itself belongs to the administrator, and a policy-rc.d would
 * keep the service from starting now but leave a cluster that starts at the next boot.
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
