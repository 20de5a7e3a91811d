/**
 * The process behind `launch.ts`: starts the programs it is told to, and tells how they ended. It is small, so that
 * starting one is quick. It goes when the server does; what it has started goes on, as it would without it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Readable } from 'node:stream';
import type { Launched, LaunchOrder, ToLauncher } from './launch.ts';

const running = new Map<number, ChildProcess>();

process.once('disconnect', () => process.exit(0));
process.on('message', (message: ToLauncher) => {
  if ('kill' in message) running.get(message.kill)?.kill('SIGKILL');
  else launch(message.id, message.order);
});

function launch(id: number, order: LaunchOrder): void {
  let file: number | undefined;
  try {
    if (order.output !== undefined) file = openSync(order.output, 'a', 0o600);
    const child = start(order, file);
    running.set(id, child);
    const [stdout, stderr] = [printed(child.stdout), printed(child.stderr)];
    child.once('error', (error: NodeJS.ErrnoException) => tell(id, { failed: code(error) }));
    child.once('close', (status) => tell(id, { status, stdout: stdout(), stderr: stderr() }));
    // What it leaves running keeps the file, not this.
    if (file !== undefined) child.once('exit', (status) => tell(id, { status, stdout: '', stderr: '' }));
    // One that ends before it has read everything says why by its status.
    child.stdin?.on('error', () => {});
    child.stdin?.end(order.input);
  } catch (thrown) {
    tell(id, { failed: code(thrown as NodeJS.ErrnoException) });
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function start({ program, args, cwd, env, input }: LaunchOrder, file: number | undefined): ChildProcess {
  const output = file ?? 'pipe';
  return spawn(program, args, {
    stdio: [input === undefined ? 'ignore' : 'pipe', output, output],
    env,
    ...(cwd === undefined ? {} : { cwd }),
  });
}

/** Once for each: what comes later is of no interest any more. */
function tell(id: number, launched: Launched): void {
  if (!running.delete(id) && !('failed' in launched)) return;
  if (process.connected) process.send?.({ id, launched });
}

function printed(stream: Readable | null): () => string {
  const chunks: Buffer[] = [];
  stream?.on('data', (chunk: Buffer) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString('utf8');
}

function code(error: NodeJS.ErrnoException): string {
  return error.code ?? error.message;
}
