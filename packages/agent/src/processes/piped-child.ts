/** A process on pipes: stdout and stderr apart, and a stdin when one was asked for. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fchownSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { TorporError } from '@torpor/protocol';
import { type ExitStatus, endedBy, exitedWith } from './exit-status.ts';
import { OutputRing } from './output-ring.ts';
import { closeFd, closePipes, type PipeSet, type ShellPipes } from './shell-pipes.ts';
import type { LaunchOrder, StartedProcess } from './started-process.ts';

/** Past this, whoever sends input is told to wait instead of filling our memory. */
const MAX_PENDING_INPUT = 8 * 1024 * 1024;

/** How long the pipes must be quiet after an exit before we conclude that somebody else holds them open. */
const QUIET_MS = 300;
/** A left-over process that goes on writing must not hide the end of the one that was asked for. */
const MAX_LINGER_ROUNDS = 6;

/** Our ends of the pipes. */
interface Ends {
  readonly stdin: Writable | undefined;
  readonly stdout: Readable;
  readonly stderr: Readable;
}

/** `stdin` is whether the process gets a pipe, or an open file that is its input; that stays the caller's to close. */
export async function startPiped(
  order: LaunchOrder,
  stdin: boolean | number,
  pipes: ShellPipes,
): Promise<StartedProcess> {
  const set = await pipes.take();
  const child = await launch(order, stdin, set);
  const ends = set === undefined ? endsOf(child) : openEnds(set, stdin === true);
  // A broken pipe ends a stream, and the exit tells the rest.
  for (const end of Object.values(ends)) end?.on('error', () => {});
  const { stdout, stderr } = ends;
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
  return {
    pid: child.pid as number,
    output,
    ended: endOf(child, ends, output),
    write: (kind, bytes) => writeStdin(ends.stdin, kind, bytes),
    closeStdin: () => {
      if (ends.stdin === undefined) throw new TorporError('conflict', 'The process has no input.');
      // A program that is about to end may have closed it first.
      if (ends.stdin.writable) ends.stdin.end();
    },
    resize: () => {
      throw new TorporError('conflict', 'The process has no terminal.');
    },
  };
}

async function launch(
  order: LaunchOrder,
  stdin: boolean | number,
  set: PipeSet | undefined,
): Promise<ChildProcess> {
  try {
    // Who may not open the pipe by name cannot use /dev/stdout.
    if (set && order.user)
      for (const { writeFd } of Object.values(set)) fchownSync(writeFd, order.user.uid, order.user.gid);
    const child = spawn(order.command, [...order.args], {
      cwd: order.cwd,
      env: { ...order.env },
      stdio: [
        typeof stdin === 'number' ? stdin : stdin ? (set?.stdin.readFd ?? 'pipe') : 'ignore',
        set?.stdout.writeFd ?? 'pipe',
        set?.stderr.writeFd ?? 'pipe',
      ],
      // A session and a process group of its own, so that a signal reaches what it starts too.
      detached: true,
      ...(order.user === undefined ? {} : { uid: order.user.uid, gid: order.user.gid }),
    });
    await once(child, 'spawn');
    return child;
  } catch (cause) {
    if (set !== undefined) closePipes(set);
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new TorporError('invalid_request', `${order.command} cannot be started: ${reason}`, { cause });
  }
}

function openEnds(set: PipeSet, stdin: boolean): Ends {
  // The process has the other ends now; ours would keep the pipes open after it.
  for (const fd of [set.stdin.readFd, set.stdout.writeFd, set.stderr.writeFd]) closeFd(fd);
  if (!stdin) closeFd(set.stdin.writeFd);
  const reading = (fd: number) => new Socket({ fd, readable: true, writable: false });
  return {
    stdin: stdin ? new Socket({ fd: set.stdin.writeFd, readable: false, writable: true }) : undefined,
    stdout: reading(set.stdout.readFd),
    stderr: reading(set.stderr.readFd),
  };
}

/** Where no shell makes pipes: Node's own sockets. */
function endsOf(child: ChildProcess): Ends {
  const { stdin, stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new TorporError('internal', 'The process has no output.');
  return { stdin: stdin ?? undefined, stdout, stderr };
}

/**
 * The end is the exit of the process itself, after the output that was already on its way. Its pipes may
 * stay open beyond that, in the hands of something it left running: that is still read, so that it does
 * not block or break, but no longer waited for.
 */
async function endOf(
  child: ChildProcess,
  { stdin, stdout, stderr }: Ends,
  output: OutputRing,
): Promise<ExitStatus> {
  const closed = Promise.all(
    [stdout, stderr].map((end) => new Promise((resolve) => end.once('close', resolve))),
  );
  const status = await new Promise<ExitStatus>((resolve) => {
    child.once('exit', (code, signal) =>
      resolve(code === null ? endedBy(signal ?? 'SIGKILL') : exitedWith(code)),
    );
  });
  stdin?.destroy();
  await Promise.race([closed, quiet([stdout, stderr], output)]);
  output.finish();
  return status;
}

async function quiet(streams: readonly Readable[], output: OutputRing): Promise<void> {
  let heard = false;
  for (const stream of streams) {
    stream.on('data', () => {
      heard = true;
    });
  }
  for (let rounds = 0; rounds < MAX_LINGER_ROUNDS; ) {
    heard = false;
    await new Promise((resolve) => setTimeout(resolve, QUIET_MS).unref());
    if (output.holding) continue;
    if (!heard) return;
    rounds += 1;
  }
}

async function writeStdin(
  stdin: Writable | undefined,
  kind: 'stdin' | 'pty',
  bytes: Uint8Array,
): Promise<void> {
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

function openStdin(stdin: Writable | undefined): Writable {
  if (!stdin?.writable) throw new TorporError('conflict', 'The input of the process is not open.');
  return stdin;
}
