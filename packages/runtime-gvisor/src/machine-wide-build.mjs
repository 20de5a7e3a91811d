/**
 * What the builds for all clones and servers of a host have in common: one at a time, at the lowest priority, with a
 * status file that `torpor doctor` reads.
 *
 * Plain JavaScript that runs on Node 20, because the setup of a clone uses it before anything is installed.
 */
import { spawn } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const TIMEOUT_MS = 30 * 60_000;
/** The exit code of `flock` when another process holds the lock. */
const LOCK_IS_TAKEN = 75;

/**
 * @typedef {{ state: 'building', progress: string } | { state: 'built' } | { state: 'failed', why: string }} BuildStatus
 */

/**
 * Renames a complete file into place, because `torpor doctor` may read it meanwhile.
 * @param {string} file
 * @param {BuildStatus} status
 */
export function writeStatus(file, status) {
  const work = join(dirname(file), `.status-${process.pid}.json`);
  writeFileSync(work, JSON.stringify(status));
  renameSync(work, file);
}

/** Undefined when there was no build. @param {string} file @returns {BuildStatus | undefined} */
export function readStatus(file) {
  try {
    const { state, progress, why } = Object(JSON.parse(readFileSync(file, 'utf8')));
    if (state === 'building') return { state, progress: String(progress ?? '') };
    if (state === 'failed' && typeof why === 'string') return { state, why };
    return state === 'built' ? { state } : undefined;
  } catch {
    return undefined;
  }
}

/** Calls `tell` at most once a second. @template T @param {(value: T) => void} tell @returns {(value: T) => void} */
export function everySecond(tell) {
  let last = 0;
  return (value) => {
    if (Date.now() - last < 1_000) return;
    last = Date.now();
    tell(value);
  };
}

/**
 * The environment for a program that downloads: its directories, proxies and certificates, and no secrets of the server.
 * @param {RegExp} [more] names of further variables
 * @returns {Record<string, string>}
 */
export function downloadEnvironment(more) {
  const passed = Object.entries(process.env).filter(
    ([name]) =>
      /^(PATH|HOME|XDG_CACHE_HOME|TMPDIR)$/.test(name) ||
      /^(SSL_CERT_|.*_proxy$|.*_PROXY$)/.test(name) ||
      more?.test(name),
  );
  return { HOME: '/root', ...Object.fromEntries(passed.map(([name, value]) => [name, value ?? ''])) };
}

/**
 * Runs a program under a lock, at the lowest priority. Rejects with the last line that the program wrote.
 * @param {string[]} command
 * @param {object} options
 * @param {string} options.lock
 * @param {string} options.cwd
 * @param {Record<string, string>} options.env
 * @param {number} [options.timeoutMs]
 * @param {boolean} [options.waitForOthers] whether to wait for another process that holds the lock
 * @param {(text: string) => void} [options.onOutput] what the program writes to stderr
 * @param {AbortSignal | undefined} [options.signal]
 */
export function runBuild(
  command,
  { lock, cwd, env, timeoutMs = TIMEOUT_MS, waitForOthers = true, onOutput, signal },
) {
  const locked = ['flock', ...(waitForOthers ? [] : ['--nonblock', '-E', String(LOCK_IS_TAKEN)]), lock];
  const [program = '', ...args] = [...locked, 'nice', '-n', '19', ...command];
  return new Promise((resolve, reject) => {
    // A process group of its own, so that the programs it starts can be killed with it.
    const child = spawn(program, args, { cwd, env, stdio: ['ignore', 'ignore', 'pipe'], detached: true });
    let said = '';
    const end = () => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // The process has ended meanwhile.
      }
    };
    const bound = setTimeout(end, timeoutMs);
    bound.unref();
    signal?.addEventListener('abort', end);
    child.stderr.setEncoding('utf8').on('data', (/** @type {string} */ text) => {
      said = `${said}${text}`.slice(-4_000);
      onOutput?.(text);
    });
    child.on('error', reject);
    child.on('close', (status) => {
      clearTimeout(bound);
      signal?.removeEventListener('abort', end);
      if (status === 0) resolve(undefined);
      else if (status === LOCK_IS_TAKEN) reject(new Error('another process is building it'));
      else reject(new Error(said.trim().split('\n').at(-1) || `${command[0]} ended with ${status}`));
    });
  });
}
