/**
 * Builds the pinned runsc from its Go module, for all clones and servers of a host.
 *
 * The program appears as <machineWide>/<name>/runsc only when it is complete. A lock keeps two processes from building at
 * once. Plain JavaScript that runs on Node 20, because the setup of a clone uses it before anything is installed.
 */
import { spawn, spawnSync } from 'node:child_process';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { PINNED } from './releases.mjs';

export const MACHINE_WIDE = '/var/lib/torpor/runsc';

/** Where to look for Go beside the search path. */
const GO_DIRECTORIES = ['/usr/local/go/bin', '/usr/lib/go/bin'];
/** The first Go 1.x that downloads the toolchain it needs by itself. */
const OLDEST_GO = 21;
/** The exit code of `flock` when another process holds the lock. */
const LOCK_IS_TAKEN = 75;
const TIMEOUT_MS = 30 * 60_000;
const STATUS = 'build.json';

/** The path of the pinned version, whether it is built or not. @param {string} [machineWide] */
export function pinnedProgram(machineWide = MACHINE_WIDE) {
  return join(machineWide, PINNED.name, 'runsc');
}

/**
 * Why the pinned version cannot be built here, as text; undefined when it can.
 * @param {string} [path]
 * @returns {string | undefined}
 */
export function obstacleToBuilding(path = process.env['PATH'] ?? '') {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'only root of a Linux machine uses it';
  const go = findGo(path);
  if (go === undefined) return 'Go is not installed';
  const { stdout } = spawnSync(go, ['version'], { encoding: 'utf8', timeout: 10_000, env: goEnvironment() });
  const [, minor = '0'] = /go1\.(\d+)/.exec(stdout ?? '') ?? [];
  if (Number(minor) >= OLDEST_GO) return undefined;
  return `Go 1.${OLDEST_GO} or newer is needed`;
}

/** @param {string} path @returns {string | undefined} */
function findGo(path) {
  return [...path.split(':').filter((directory) => directory !== ''), ...GO_DIRECTORIES]
    .map((directory) => join(directory, 'go'))
    .find((program) => {
      try {
        accessSync(program, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/**
 * The environment for Go: its directories and how it reaches its modules, and no secrets of the server.
 * @returns {Record<string, string>}
 */
function goEnvironment() {
  const passed = Object.entries(process.env).filter(
    ([name]) =>
      /^(PATH|HOME|XDG_CACHE_HOME|TMPDIR)$/.test(name) || /^(GO|SSL_CERT_|.*_proxy$|.*_PROXY$)/.test(name),
  );
  const environment = Object.fromEntries(passed.map(([name, value]) => [name, value ?? '']));
  return { HOME: '/root', ...environment, GOTOOLCHAIN: PINNED.toolchain, GOFLAGS: '', CGO_ENABLED: '0' };
}

/**
 * Builds the pinned version at the lowest priority, unless it exists. Resolves with the program; rejects with the reason.
 * @param {object} options
 * @param {string} [options.machineWide]
 * @param {(packages: number) => void} [options.onProgress] how many packages have been compiled
 * @param {boolean} [options.waitForOthers] whether to wait for another process that is building it
 * @param {AbortSignal} [options.signal]
 * @returns {Promise<string>}
 */
export async function buildRunsc({
  machineWide = MACHINE_WIDE,
  onProgress,
  waitForOthers = true,
  signal,
} = {}) {
  const program = pinnedProgram(machineWide);
  if (existsSync(program)) return program;
  const obstacle = obstacleToBuilding();
  if (obstacle !== undefined) throw new Error(obstacle);
  mkdirSync(machineWide, { recursive: true, mode: 0o755 });
  const place = mkdtempSync(join(machineWide, '.building-'));
  /** @param {BuildStatus} status */
  const tell = (status) => writeStatus(place, machineWide, status);
  try {
    tell({ state: 'building', packages: 0 });
    const progress = everySecond((/** @type {number} */ packages) => {
      tell({ state: 'building', packages });
      onProgress?.(packages);
    });
    await runGo(place, { machineWide, onProgress: progress, waitForOthers, signal });
    if (existsSync(program)) return program;
    mkdirSync(join(machineWide, PINNED.name), { recursive: true });
    renameSync(join(place, 'runsc'), program);
    tell({ state: 'built' });
    return program;
  } catch (error) {
    tell({ state: 'failed', why: error instanceof Error ? error.message : String(error) });
    throw error;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

/**
 * @typedef {{ state: 'building', packages: number } | { state: 'built' } | { state: 'failed', why: string }} BuildStatus
 */

/**
 * Renames a complete file into place, because `torpor doctor` may read it meanwhile.
 * @param {string} place
 * @param {string} machineWide
 * @param {BuildStatus} status
 */
function writeStatus(place, machineWide, status) {
  writeFileSync(join(place, 'status.json'), JSON.stringify(status));
  renameSync(join(place, 'status.json'), join(machineWide, STATUS));
}

/**
 * The status of the last build on this host; undefined when there was none.
 * @param {string} [machineWide]
 * @returns {BuildStatus | undefined}
 */
export function readBuildStatus(machineWide = MACHINE_WIDE) {
  try {
    return checkedStatus(JSON.parse(readFileSync(join(machineWide, STATUS), 'utf8')));
  } catch {
    return undefined;
  }
}

/** @param {unknown} value @returns {BuildStatus | undefined} */
function checkedStatus(value) {
  const { state, packages, why } = Object(value);
  if (state === 'building' && typeof packages === 'number') return { state, packages };
  if (state === 'failed' && typeof why === 'string') return { state, why };
  return state === 'built' ? { state } : undefined;
}

/** @template T @param {(value: T) => void} tell @returns {(value: T) => void} */
function everySecond(tell) {
  let last = 0;
  return (value) => {
    if (Date.now() - last < 1_000) return;
    last = Date.now();
    tell(value);
  };
}

/**
 * @param {string} place
 * @param {{ machineWide: string, onProgress: ((packages: number) => void) | undefined, waitForOthers: boolean, signal: AbortSignal | undefined }} options
 */
function runGo(place, { machineWide, onProgress, waitForOthers, signal }) {
  const go = findGo(process.env['PATH'] ?? '') ?? 'go';
  const stamp = `-X ${PINNED.versionVariable}=${PINNED.name}`;
  // -v prints one line for each compiled package.
  const build = [go, 'install', '-v', '-trimpath', '-buildvcs=false', '-ldflags', stamp, PINNED.source];
  const lock = [
    'flock',
    ...(waitForOthers ? [] : ['--nonblock', '-E', String(LOCK_IS_TAKEN)]),
    join(machineWide, '.build.lock'),
  ];
  const [command = '', ...args] = [...lock, 'nice', '-n', '19', ...build];
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd: place,
      env: { ...goEnvironment(), GOBIN: place },
      stdio: ['ignore', 'ignore', 'pipe'],
      // A process group of its own, so that its compilers can be killed with it.
      detached: true,
    });
    let said = '';
    let packages = 0;
    const end = () => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // The process has ended meanwhile.
      }
    };
    const bound = setTimeout(end, TIMEOUT_MS);
    bound.unref();
    signal?.addEventListener('abort', end);
    child.stderr.setEncoding('utf8').on('data', (/** @type {string} */ text) => {
      said = `${said}${text}`.slice(-4_000);
      packages += text.split('\n').filter((line) => line !== '' && !line.startsWith('go: ')).length;
      onProgress?.(packages);
    });
    child.on('error', reject);
    child.on('close', (status) => {
      clearTimeout(bound);
      signal?.removeEventListener('abort', end);
      if (status === 0) resolve(undefined);
      else if (status === LOCK_IS_TAKEN) reject(new Error('another process is building it'));
      else reject(new Error(lastError(said) ?? `go install ended with ${status}`));
    });
  });
}

/** @param {string} said @returns {string | undefined} */
function lastError(said) {
  return said.trim().split('\n').at(-1) || undefined;
}
