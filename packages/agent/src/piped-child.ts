/** A process on pipes: stdout and stderr apart, and a stdin when one was asked for. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { TorporError } from '@torpor/protocol';
import { type ExitStatus, endedBy, exitedWith } from './exit-status.ts';
import { OutputRing } from './output-ring.ts';
import type { LaunchOrder, StartedProcess } from './started-process.ts';

/** Past this, whoever sends input is told to wait instead of filling our memory. */
const MAX_PENDING_INPUT = 8 * 1024 * 1024;

/** How long the pipes must be quiet after an exit before we conclude that somebody else holds them open. */
const QUIET_MS = 300;
/** A left-over process that goes on writing must not hide the end of the one that was asked for. */
const MAX_LINGER_ROUNDS = 6;

export async function startPiped(order: LaunchOrder, stdin: boolean): Promise<StartedProcess> {
  const child = launch(order, stdin);
  try {
    await once(child, 'spawn');
  } catch (cause) {
    throw new TorporError('invalid_request', `${order.command} cannot be started: ${reasonOf(cause)}`, {
      cause,
    });
  }
  const { stdout, stderr } = child as { stdout: Readable; stderr: Readable };
  const output = new OutputRing(order.keptBytes, {
    pause: () => {
      for (const stream of [stdout, stderr]) stream.pause();
    },
    resume: () => {
      for (const stream of [stdout, stderr]) stream.resume();
    },
  });
  stdout.on('data', (bytes: Buffer) => output.append('stdout', bytes));
  stderr.on('data', (bytes: Buffer) => output.append('stderr', bytes));
  // A broken pipe ends a stream, and the exit tells the rest.
  for (const stream of [stdout, stderr, child.stdin]) stream?.on('error', () => {});
  return {
    pid: child.pid as number,
    output,
    ended: endOf(child, output),
    write: (kind, bytes) => writeStdin(child.stdin, kind, bytes),
    closeStdin: () => {
      openStdin(child.stdin).end();
    },
    resize: () => {
      throw new TorporError('conflict', 'The process has no terminal.');
    },
  };
}

function launch(order: LaunchOrder, stdin: boolean): ChildProcess {
  try {
    return spawn(order.command, [...order.args], {
      cwd: order.cwd,
      env: { ...order.env },
      stdio: [stdin ? 'pipe' : 'ignore', 'pipe', 'pipe'],
      // A session and a process group of its own, so that a signal reaches what it starts too.
      detached: true,
      ...(order.user === undefined ? {} : { uid: order.user.uid, gid: order.user.gid }),
    });
  } catch (cause) {
    throw new TorporError('invalid_request', `The command cannot be started: ${reasonOf(cause)}`, { cause });
  }
}

/**
 * The end is the exit of the process itself, after the output that was already on its way. Its pipes may
 * stay open beyond that, in the hands of something it left running: that is still read, so that it does
 * not block or break, but no longer waited for.
 */
async function endOf(child: ChildProcess, output: OutputRing): Promise<ExitStatus> {
  const closed = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
  });
  const status = await new Promise<ExitStatus>((resolve) => {
    child.once('exit', (code, signal) =>
      resolve(code === null ? endedBy(signal ?? 'SIGKILL') : exitedWith(code)),
    );
  });
  await Promise.race([closed, quiet(child, output)]);
  output.finish();
  return status;
}

async function quiet(child: ChildProcess, output: OutputRing): Promise<void> {
  let heard = false;
  const hear = () => {
    heard = true;
  };
  child.stdout?.on('data', hear);
  child.stderr?.on('data', hear);
  for (let rounds = 0; rounds < MAX_LINGER_ROUNDS; ) {
    heard = false;
    await new Promise((resolve) => setTimeout(resolve, QUIET_MS).unref());
    if (output.holding) continue;
    if (!heard) return;
    rounds += 1;
  }
}

async function writeStdin(stdin: Writable | null, kind: 'stdin' | 'pty', bytes: Uint8Array): Promise<void> {
  if (kind === 'pty') throw new TorporError('conflict', 'The process has no terminal.');
  const open = openStdin(stdin);
  if (open.writableLength > MAX_PENDING_INPUT) {
    throw new TorporError('capacity', 'The process does not read its input.');
  }
  await new Promise<void>((resolve, reject) => {
    open.write(bytes, (cause) => {
      if (cause) reject(new TorporError('conflict', 'The process has closed its input.', { cause }));
      else resolve();
    });
  });
}

function openStdin(stdin: Writable | null): Writable {
  if (stdin === null || !stdin.writable) {
    throw new TorporError('conflict', 'The input of the process is not open.');
  }
  return stdin;
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
