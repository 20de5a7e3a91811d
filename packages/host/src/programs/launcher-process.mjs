/**
 * The process behind `launcher.ts`: starts the requested programs and reports their results. This process exits when the
 * server does; the programs that it started continue, as they would without it.
 *
 * The process is small so that forking it is quick. It is plain JavaScript because Node's type stripping is larger than
 * the rest of the process.
 */
import { spawn, spawnSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

/** @typedef {import('./launcher.ts').LaunchRequest} LaunchRequest */

/** @type {Map<number, import('node:child_process').ChildProcess>} */
const running = new Map();

useBatchScheduling();

process.once('disconnect', () => process.exit(0));
process.on('message', (/** @type {import('./launcher.ts').ToLauncher} */ message) => {
  if ('kill' in message) running.get(message.kill)?.kill('SIGKILL');
  else if ('sendLine' in message) running.get(message.sendLine)?.stdin?.end('\n');
  else launch(message.id, message.request);
});

/**
 * Sets SCHED_BATCH for this process and all programs that it starts: a thread that was just woken does not preempt the
 * thread that woke it. A thread of the sentry asks a helper thread to change its memory map and then sleeps. The helper
 * spins until that thread sleeps. If the thread is preempted before it sleeps, the helper spins for milliseconds. Without
 * SCHED_BATCH sandboxes still work, but more slowly.
 */
function useBatchScheduling() {
  spawnSync('chrt', ['-b', '-p', '0', String(process.pid)], { stdio: 'ignore' });
}

/**
 * @param {number} id
 * @param {LaunchRequest} request
 */
function launch(id, request) {
  let file;
  try {
    if (request.outputFile !== undefined) file = openSync(request.outputFile, 'a', 0o600);
    const child = start(request, file);
    running.set(id, child);
    const [stdout, stderr] = [collect(child.stdout), collect(child.stderr)];
    child.once('error', (error) => report(id, { failed: codeOf(error) }));
    child.once('close', (status) => report(id, { status, stdout: stdout(), stderr: stderr() }));
    // Processes that the program leaves running keep the file open, so `close` may come much later than `exit`.
    if (file !== undefined) child.once('exit', (status) => report(id, { status, stdout: '', stderr: '' }));
    // A program may exit before it has read all its input; its exit status tells why.
    child.stdin?.on('error', () => {});
    if (request.waitsForLine !== true) child.stdin?.end(request.input);
  } catch (thrown) {
    report(id, { failed: codeOf(/** @type {Error} */ (thrown)) });
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/**
 * @param {LaunchRequest} request
 * @param {number | undefined} file
 */
function start({ program, args, cwd, env, input, waitsForLine }, file) {
  const output = file ?? 'pipe';
  return spawn(program, args, {
    stdio: [input === undefined && waitsForLine !== true ? 'ignore' : 'pipe', output, output],
    env,
    ...(cwd === undefined ? {} : { cwd }),
  });
}

/**
 * Reports the first outcome of each program and ignores later ones.
 *
 * @param {number} id
 * @param {import('./launcher.ts').LaunchOutcome} outcome
 */
function report(id, outcome) {
  if (!running.delete(id) && !('failed' in outcome)) return;
  if (process.connected) process.send?.({ id, outcome });
}

/** @param {import('node:stream').Readable | null} stream */
function collect(stream) {
  /** @type {Buffer[]} */
  const chunks = [];
  stream?.on('data', (chunk) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString('utf8');
}

/** @param {NodeJS.ErrnoException} error */
function codeOf(error) {
  return error.code ?? error.message;
}
