/**
 * Makes the root of `base` from Debian's packages, once for all clones and servers of a host. Data directories copy it into
 * their stores and do not depend on it afterwards.
 *
 * ```
 * <machineWide>/<digest>/root/       the root
 *                        base.json   what it is; written last
 * <machineWide>/current              a link to the newest <digest>
 * <machineWide>/build.json           the status of the last build
 * ```
 *
 * Plain JavaScript that runs on Node 20, because the setup of a clone uses it before anything is installed.
 */
import { execFile, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statfsSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { downloadEnvironment, readStatus, runBuild, writeStatus } from '../machine-wide-build.mjs';
import { NPM, PACKAGES, RECIPE, SUITE } from './recipe.mjs';
import { treeDigest } from './tree-digest.mjs';

export const MACHINE_WIDE_BASE = '/var/lib/torpor/base';

/** For the root while it is made and the downloaded packages. */
const NEEDED_BYTES = 3 * 1024 ** 3;
const STATUS = 'build.json';
/** Files of the host that mmdebstrap copies for its own downloads. */
const OF_THE_HOST = ['etc/resolv.conf', 'etc/hostname'];

const run = promisify(execFile);

/** The builds of this process that have not ended. @type {Set<string>} */
const places = new Set();

/**
 * @typedef {object} MachineBase
 * @property {string} digest of the root's content
 * @property {string} root
 * @property {number} recipe
 * @property {string} builtAt
 * @property {number} bytes
 */

/** Undefined when no root was made on this host yet. @param {string} [machineWide] @returns {MachineBase | undefined} */
export function findMachineBase(machineWide = MACHINE_WIDE_BASE) {
  try {
    const directory = join(machineWide, readlinkSync(join(machineWide, 'current')));
    const { digest, recipe, builtAt, bytes } = JSON.parse(readFileSync(join(directory, 'base.json'), 'utf8'));
    if (typeof digest !== 'string' || !directory.endsWith(digest)) return undefined;
    return {
      digest,
      root: join(directory, 'root'),
      recipe: Number(recipe),
      builtAt: String(builtAt),
      bytes: Number(bytes),
    };
  } catch {
    return undefined;
  }
}

/** Why no root can be made here, as text; undefined when one can. @param {string} [machineWide] @returns {string | undefined} */
export function obstacleToBase(machineWide = MACHINE_WIDE_BASE) {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'only root of a Linux machine uses it';
  if (!isOnPath('mmdebstrap')) return 'mmdebstrap is not installed';
  if (npmCommand() === undefined) return 'npm is not installed';
  mkdirSync(machineWide, { recursive: true, mode: 0o700 });
  const { bavail, bsize } = statfsSync(machineWide);
  if (bavail * bsize < NEEDED_BYTES)
    return `less than ${NEEDED_BYTES / 1024 ** 3} GB are free below ${machineWide}`;
  return undefined;
}

/**
 * Makes the root at the lowest priority, unless there is one. Rejects with the reason.
 * @param {object} options
 * @param {string} options.node the Node program for guests
 * @param {string} [options.mirror] of Debian; guests use it as well
 * @param {boolean} [options.again] makes a new root although there is one
 * @param {string} [options.machineWide]
 * @param {(phase: string) => void} [options.onProgress]
 * @param {AbortSignal | undefined} [options.signal]
 * @returns {Promise<MachineBase>}
 */
export async function buildBase({
  node,
  mirror,
  again = false,
  machineWide = MACHINE_WIDE_BASE,
  onProgress,
  signal,
}) {
  const before = findMachineBase(machineWide);
  if (before !== undefined && !again) return before;
  const obstacle = obstacleToBase(machineWide);
  if (obstacle !== undefined) throw new Error(obstacle);
  const status = join(machineWide, STATUS);
  const progress = (/** @type {string} */ phase) => {
    writeStatus(status, { state: 'building', progress: phase });
    onProgress?.(phase);
  };
  removeUnfinished(machineWide);
  const place = mkdtempSync(join(machineWide, `.building-${process.pid}-`));
  places.add(place);
  chmodSync(place, 0o700);
  try {
    progress('starting');
    await bootstrap(place, {
      machineWide,
      mirror,
      isDone: () => isNewer(machineWide, before),
      progress,
      signal,
    });
    const other = findMachineBase(machineWide);
    if (isNewer(machineWide, before) && other !== undefined) return other;
    progress('adding Node and npm');
    await addNode(join(place, 'root'), { node, place, signal });
    progress('computing the digest');
    const made = await publish(place, machineWide, signal);
    writeStatus(status, { state: 'built' });
    return made;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    writeStatus(status, { state: 'failed', why });
    throw error;
  } finally {
    removeUnmounted(place);
    places.delete(place);
  }
}

/** The status of the last build on this host; undefined when there was none. @param {string} [machineWide] */
export function readBaseStatus(machineWide = MACHINE_WIDE_BASE) {
  return readStatus(join(machineWide, STATUS));
}

/** Whether another process has made a root meanwhile. @param {string} machineWide @param {MachineBase | undefined} before */
function isNewer(machineWide, before) {
  const now = findMachineBase(machineWide);
  return now !== undefined && now.digest !== before?.digest;
}

/**
 * @param {string} place
 * @param {{ machineWide: string, mirror: string | undefined, isDone: () => boolean, progress: (phase: string) => void, signal: AbortSignal | undefined }} options
 */
async function bootstrap(place, { machineWide, mirror, isDone, progress, signal }) {
  const current = join(machineWide, 'current');
  const before = isDone() ? '' : readLink(current);
  // Under the lock: a process that waited for another one finds its root and makes none.
  const unlessMade = ['sh', '-c', '[ "$(readlink "$0")" != "$1" ] || { shift; exec "$@"; }', current, before];
  const command = [
    'mmdebstrap',
    '--mode=root',
    '--variant=minbase',
    '--format=directory',
    '--skip=output/dev',
    `--include=${PACKAGES.join(',')}`,
    SUITE,
    join(place, 'root'),
    ...(mirror === undefined ? [] : [mirror]),
  ];
  await runBuild([...unlessMade, ...command], {
    lock: join(machineWide, '.build.lock'),
    cwd: place,
    env: { ...downloadEnvironment(), ...proxyOfApt(), TMPDIR: place, DEBIAN_FRONTEND: 'noninteractive' },
    onOutput: (text) => {
      for (const [, phase] of text.matchAll(/^I: (.+?)\.*$/gm)) if (phase !== undefined) progress(phase);
    },
    signal,
  });
  for (const path of OF_THE_HOST) rmSync(join(place, 'root', path), { force: true });
}

/** @param {string} path */
function readLink(path) {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** The proxy that the host's apt is configured with. mmdebstrap does not read that configuration. */
function proxyOfApt() {
  const { stdout } = spawnSync('apt-config', ['shell', 'PROXY', 'Acquire::http::Proxy'], {
    encoding: 'utf8',
  });
  const [, proxy] = /^PROXY='(http[^']*)'/m.exec(stdout ?? '') ?? [];
  return proxy === undefined ? {} : { http_proxy: proxy };
}

/**
 * @param {string} root
 * @param {{ node: string, place: string, signal: AbortSignal | undefined }} options
 */
async function addNode(root, { node, place, signal }) {
  const programs = join(root, 'usr/local/bin');
  const npm = join(root, 'usr/local/lib/node_modules/npm');
  copyFileSync(node, join(programs, 'node'));
  chmodSync(join(programs, 'node'), 0o755);
  const [command = '', ...args] = npmCommand() ?? [];
  const pack = [
    ...args,
    'pack',
    `npm@${NPM.version}`,
    '--json',
    '--ignore-scripts',
    '--pack-destination',
    place,
  ];
  const { stdout } = await run(command, pack, {
    cwd: place,
    env: downloadEnvironment(/^(npm_config_|NPM_)/i),
    signal,
  });
  const [{ filename, integrity }] = JSON.parse(stdout);
  if (integrity !== NPM.integrity) throw new Error(`npm ${NPM.version} is not the one that was expected`);
  mkdirSync(npm, { recursive: true });
  const unpack = [
    '--extract',
    '--file',
    join(place, filename),
    '--strip-components=1',
    '--no-same-owner',
    '-C',
    npm,
  ];
  await run('tar', unpack, { signal });
  for (const name of ['npm', 'npx']) {
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(programs, name));
    chmodSync(join(npm, `bin/${name}-cli.js`), 0o755);
  }
}

/** The npm that runs this script, else the one on the search path. @returns {string[] | undefined} */
function npmCommand() {
  const running = process.env['npm_execpath'];
  if (running !== undefined && existsSync(running)) return [process.execPath, running];
  return isOnPath('npm') ? ['npm'] : undefined;
}

/** @param {string} program */
function isOnPath(program) {
  return (process.env['PATH'] ?? '')
    .split(':')
    .some((directory) => directory !== '' && existsSync(join(directory, program)));
}

/**
 * @param {string} place
 * @param {string} machineWide
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<MachineBase>}
 */
export async function publish(place, machineWide, signal) {
  const digest = await treeDigest(join(place, 'root'), signal);
  const { stdout } = await run('du', ['--summarize', '--bytes', join(place, 'root')], { signal });
  const bytes = Number.parseInt(stdout, 10);
  const directory = join(machineWide, digest);
  if (!(await isWhole(directory, digest, signal))) {
    removeUnmounted(directory);
    mkdirSync(directory, { mode: 0o700 });
    renameSync(join(place, 'root'), join(directory, 'root'));
    const about = { digest, recipe: RECIPE, suite: SUITE, builtAt: new Date().toISOString(), bytes };
    writeFileSync(join(directory, 'base.json'), JSON.stringify(about));
  }
  // After a power loss `current` leads to a whole root or to none.
  await run('sync', ['--file-system', directory], { signal });
  const previous = readLink(join(machineWide, 'current'));
  symlinkSync(digest, join(place, 'current'));
  renameSync(join(place, 'current'), join(machineWide, 'current'));
  removeOld(machineWide, [digest, previous]);
  const made = findMachineBase(machineWide);
  if (made === undefined) throw new Error(`${directory} disappeared`);
  return made;
}

/** Whether an earlier build has left exactly this root. @param {string} directory @param {string} digest @param {AbortSignal | undefined} signal */
async function isWhole(directory, digest, signal) {
  try {
    const about = JSON.parse(readFileSync(join(directory, 'base.json'), 'utf8'));
    return about.digest === digest && (await treeDigest(join(directory, 'root'), signal)) === digest;
  } catch {
    signal?.throwIfAborted();
    return false;
  }
}

/** Forgets a root that is not as it was made: the next build replaces it. @param {MachineBase} base */
export function forgetBase({ root, digest }) {
  const current = join(root, '..', '..', 'current');
  if (readLink(current) === digest) rmSync(current);
}

/** The previous root stays: a server may be copying it. @param {string} machineWide @param {string[]} kept */
function removeOld(machineWide, kept) {
  for (const name of readdirSync(machineWide)) {
    if (/^[0-9a-f]{64}$/.test(name) && !kept.includes(name))
      rmSync(join(machineWide, name), { recursive: true });
  }
}

/**
 * What killed builds have left. In a container that starts again, the server has the number of the process that was killed.
 * @param {string} machineWide
 */
export function removeUnfinished(machineWide) {
  for (const name of readdirSync(machineWide)) {
    const [, pid] = /^\.building-(\d+)-/.exec(name) ?? [];
    const place = join(machineWide, name);
    if (pid === undefined || places.has(place)) continue;
    if (Number(pid) === process.pid || !existsSync(`/proc/${pid}`)) removeUnmounted(place);
  }
}

/** Leaves a directory in which something is mounted: nothing is deleted through a mount. @param {string} path */
function removeUnmounted(path) {
  if (readFileSync('/proc/mounts', 'utf8').includes(` ${path}/`)) return;
  rmSync(path, { recursive: true, force: true });
}
