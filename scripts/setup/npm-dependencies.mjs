/**
 * Installs npm's dependencies when node_modules differs from package-lock.json.
 *
 * The comparison uses npm's own record, node_modules/.package-lock.json, which npm writes last. So a manual `npm install`
 * counts too, and an interrupted installation is repeated.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { withLock } from './lock.mjs';

const ROOT = join(import.meta.dirname, '..', '..');
const BIN = join(ROOT, 'node_modules', '.bin');
const OLDEST_NODE = 24;

/**
 * @param {(line: string) => void} say
 * @returns {Promise<boolean>} whether there was anything to do
 */
export async function installDependencies(say) {
  requireAgreement(ROOT);
  if (reasonToInstall(ROOT) === undefined) return false;
  return await withLock(join(ROOT, '.torpor', 'setup.lock'), say, () => {
    const reason = reasonToInstall(ROOT);
    // Another setup has installed them while this one waited for the lock.
    if (reason === undefined) return true;
    // `npm ci` removes node_modules first, which would break a server that runs from this clone.
    const command = existsSync(join(ROOT, 'node_modules')) ? ['install', '--no-save'] : ['ci'];
    say(`npm ${command[0]} (${reason})`);
    const started = Date.now();
    runNpm(command);
    say(`dependencies installed, ${((Date.now() - started) / 1000).toFixed(1)} s`);
    return true;
  });
}

/**
 * Installs what the lockfile says, without writing to it.
 * @param {string[]} command
 */
function runNpm(command) {
  // npm must not run on the Node in node_modules, which it may replace.
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((dir) => dir !== BIN);
  const { status, error, stdout, stderr } = spawnSync(
    'npm',
    // Hides warnings about Node 20, which only runs the setup; everything else runs on Node 24.
    [...command, '--include=dev', '--no-audit', '--no-fund', '--loglevel=error'],
    { cwd: ROOT, encoding: 'utf8', env: { ...process.env, PATH: path.join(delimiter) } },
  );
  if (status === 0) return;
  const output = `${stdout ?? ''}${stderr ?? ''}`.trim();
  throw new Error(`npm ${command[0]} failed${error ? `: ${error.message}` : ''}\n${output}`);
}

/**
 * The reason for an installation, or undefined when everything is installed.
 * @param {string} root
 * @returns {string | undefined}
 */
export function reasonToInstall(root) {
  const wanted = readJson(join(root, 'package-lock.json')).packages;
  const record = join(root, 'node_modules', '.package-lock.json');
  if (!existsSync(record)) return 'dependencies are missing';
  const installed = readJson(record).packages;

  for (const [path, entry] of Object.entries(wanted)) {
    const found = installed[path];
    // npm's record does not contain the root, and packages for other platforms are not installed.
    if (path === '' || (found === undefined && (entry.optional || entry.devOptional))) continue;
    if (found?.version !== entry.version || found?.integrity !== entry.integrity) {
      return `${path} is not as package-lock.json says`;
    }
  }
  return undefined;
}

/**
 * Throws when a package.json names a dependency that the lockfile does not contain: the installed version would then
 * depend on the day.
 * @param {string} root
 */
export function requireAgreement(root) {
  const wanted = readJson(join(root, 'package-lock.json')).packages;
  const packages = readdirSync(join(root, 'packages')).map((name) => `packages/${name}`);
  for (const path of ['', ...packages]) {
    const file = join(root, path, 'package.json');
    if (!existsSync(file)) continue;
    const manifest = readJson(file);
    for (const field of /** @type {const} */ (['dependencies', 'devDependencies'])) {
      if (!sameVersions(manifest[field], wanted[path]?.[field])) {
        throw new Error(
          `${join(path, 'package.json')} and package-lock.json disagree: ` +
            'type `npm install` and commit the lockfile',
        );
      }
    }
  }
}

/** @param {Record<string, string>} one @param {Record<string, string>} other */
function sameVersions(one = {}, other = {}) {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].every((name) => one[name] === other[name]);
}

/** Everything after the setup runs on the Node of the npm package `node`. */
export function requireNode24() {
  const { stdout } = spawnSync(join(BIN, 'node'), ['--version'], { encoding: 'utf8' });
  const version = (stdout ?? '').trim();
  if (Number.parseInt(version.slice(1), 10) >= OLDEST_NODE) return;
  throw new Error(
    `node_modules/.bin/node should be Node ${OLDEST_NODE} or newer but is ${version || 'missing'}.\n` +
      'The npm package "node" fetches it in its install script; if scripts are switched off, type:\n' +
      '  npm rebuild node --ignore-scripts=false',
  );
}

/**
 * @typedef {{ version?: string, integrity?: string, optional?: boolean, devOptional?: boolean,
 *   dependencies?: Record<string, string>, devDependencies?: Record<string, string> }} LockEntry
 */

/**
 * @param {string} file
 * @returns {LockEntry & { packages: Record<string, LockEntry> }}
 */
function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}
