/**
 * Builds the pinned runsc from its Go module, for all clones and servers of a host.
 *
 * The program appears as <machineWide>/<name>/runsc only when it is complete. A lock keeps two processes from building at
 * once. Plain JavaScript that runs on Node 20, because the setup of a clone uses it before anything is installed.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  downloadEnvironment,
  everySecond,
  readStatus,
  runBuild,
  writeStatus,
} from '../machine-wide-build.mjs';
import { PINNED } from './releases.mjs';

export const MACHINE_WIDE = '/var/lib/torpor/runsc';

/** Where to look for Go beside the search path. */
const GO_DIRECTORIES = ['/usr/local/go/bin', '/usr/lib/go/bin'];
/** The first Go 1.x that downloads the toolchain it needs by itself. */
const OLDEST_GO = 21;
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

/** Finds the go command. @param {string} path @returns {string | undefined} */
export function findGo(path) {
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

/** @returns {Record<string, string>} */
function goEnvironment() {
  return { ...downloadEnvironment(/^GO/), GOTOOLCHAIN: PINNED.toolchain, GOFLAGS: '', CGO_ENABLED: '0' };
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
  const tell = (/** @type {import('../machine-wide-build.mjs').BuildStatus} */ status) =>
    writeStatus(join(machineWide, STATUS), status);
  try {
    tell({ state: 'building', progress: '0 packages so far' });
    const progress = everySecond((/** @type {number} */ packages) => {
      tell({ state: 'building', progress: `${packages} packages so far` });
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

/** The status of the last build on this host; undefined when there was none. @param {string} [machineWide] */
export function readBuildStatus(machineWide = MACHINE_WIDE) {
  return readStatus(join(machineWide, STATUS));
}

/**
 * @param {string} place
 * @param {{ machineWide: string, onProgress: (packages: number) => void, waitForOthers: boolean, signal: AbortSignal | undefined }} options
 */
function runGo(place, { machineWide, onProgress, waitForOthers, signal }) {
  const go = findGo(process.env['PATH'] ?? '') ?? 'go';
  const stamp = `-X ${PINNED.versionVariable}=${PINNED.name}`;
  // -v prints one line for each compiled package.
  const build = [go, 'install', '-v', '-trimpath', '-buildvcs=false', '-ldflags', stamp, PINNED.source];
  let packages = 0;
  return runBuild(build, {
    lock: join(machineWide, '.build.lock'),
    cwd: place,
    env: { ...goEnvironment(), GOBIN: place },
    waitForOthers,
    onOutput: (text) => {
      packages += text.split('\n').filter((line) => line !== '' && !line.startsWith('go: ')).length;
      onProgress(packages);
    },
    signal,
  });
}
