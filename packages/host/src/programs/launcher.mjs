/**
 * The process behind `launch.ts`: starts the programs it is told to, and tells how they ended. It goes when the server
 * does; what it has started goes on, as it would without it.
 *
 * It is small, so that starting one is quick; and plain JavaScript, because what takes types out of a file is larger
 * than all the rest of it.
 */
import { spawn, spawnSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';

/** @typedef {import('./launch.ts').LaunchOrder} LaunchOrder */

/** @type {Map<number, import('node:child_process').ChildProcess>} */
const running = new Map();

keepWokenInLine();

process.once('disconnect', () => process.exit(0));
process.on('message', (/** @type {import('./launch.ts').ToLauncher} */ message) => {
  if ('kill' in message) running.get(message.kill)?.kill('SIGKILL');
  else if ('tell' in message) running.get(message.tell)?.stdin?.end('\n');
  else launch(message.id, message.order);
});

/**
 * Whoever was just woken does not push aside who woke it, in all programs that are started here. The kernel of a guest
 * lets a helper change its mappings, and the helper calls it in a loop until it sleeps: one that is pushed aside before
 * that is called for milliseconds. Where it cannot be had, guests are slower.
 */
function keepWokenInLine() {
  spawnSync('chrt', ['-b', '-p', '0', String(process.pid)], { stdio: 'ignore' });
}

/**
 * @param {number} id
 * @param {LaunchOrder} order
 */
function launch(id, order) {
  let file;
  try {
    if (order.output !== undefined) file = openSync(order.output, 'a', 0o600);
    const child = start(order, file);
    running.set(id, child);
    const [stdout, stderr] = [printed(child.stdout), printed(child.stderr)];
    child.once('error', (error) => tell(id, { failed: code(error) }));
    child.once('close', (status) => tell(id, { status, stdout: stdout(), stderr: stderr() }));
    // What it leaves running keeps the file, not this.
    if (file !== undefined) child.once('exit', (status) => tell(id, { status, stdout: '', stderr: '' }));
    // One that ends before it has read everything says why by its status.
    child.stdin?.on('error', () => {});
    if (order.waits !== true) child.stdin?.end(order.input);
  } catch (thrown) {
    tell(id, { failed: code(/** @type {Error} */ (thrown)) });
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/**
 * @param {LaunchOrder} order
 * @param {number | undefined} file
 */
function start({ program, args, cwd, env, input, waits }, file) {
  const output = file ?? 'pipe';
  return spawn(program, args, {
    stdio: [input === undefined && waits !== true ? 'ignore' : 'pipe', output, output],
    env,
    ...(cwd === undefined ? {} : { cwd }),
  });
}

/**
 * Once for each: what comes later is of no interest any more.
 *
 * @param {number} id
 * @param {import('./launch.ts').Launched} launched
 */
function tell(id, launched) {
  if (!running.delete(id) && !('failed' in launched)) return;
  if (process.connected) process.send?.({ id, launched });
}

/** @param {import('node:stream').Readable | null} stream */
function printed(stream) {
  /** @type {Buffer[]} */
  const chunks = [];
  stream?.on('data', (chunk) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString('utf8');
}

/** @param {NodeJS.ErrnoException} error */
function code(error) {
  return error.code ?? error.message;
}
