/** A process on pipes: separate stdout and stderr, and a stdin when the caller wants one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fchownSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { TorporError } from '@torpor/protocol';
import { type ExitStatus, endedBy, exitedWith } from './exit-status.ts';
import { OutputRing } from './output-ring.ts';
import { closeFd, closePipes, type PipeSet, type ShellPipes } from './shell-pipes.ts';
import type { LaunchSpec, StartedProcess } from './started-process.ts';

/** More unread input than this is refused, so that it does not fill the agent's memory. */
const MAX_PENDING_INPUT = 8 * 1024 * 1024;

/** After the exit, pipes that are quiet for this long are taken to be held open by another process. */
const QUIET_MS = 300;
/** A left-over process that keeps writing delays the end of the started process by this many checks at most. */
const MAX_QUIET_CHECKS = 6;

/** The agent's ends of the pipes. */
interface PipeEnds {
  readonly stdin: Writable | undefined;
  readonly stdout: Readable;
  readonly stderr: Readable;
}

/** `stdin`: whether the process gets a pipe, or an open descriptor to use as its input, which the caller closes. */
export async function startPiped(
  spec: LaunchSpec,
  stdin: boolean | number,
  pipes: Pick<ShellPipes, 'take'>,
): Promise<StartedProcess> {
  const set = await pipes.take();
  const child = await spawnChild(spec, stdin, set);
  const ends = set === undefined ? childPipeEnds(child) : openPipeEnds(set, stdin === true);
  // A broken pipe ends the stream; the exit of the process is reported separately.
  for (const end of Object.values(ends)) end?.on('error', () => {});
  const { stdout, stderr } = ends;
  const output = new OutputRing(spec.keptBytes, {
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
    ended: waitForEnd(child, ends, output),
    write: (kind, bytes) => writeStdin(ends.stdin, kind, bytes),
    closeStdin: () => {
      if (ends.stdin === undefined) throw new TorporError('conflict', 'The process has no input.');
      // A program that is ending may have closed its stdin already.
      if (ends.stdin.writable) ends.stdin.end();
    },
    resize: () => {
      throw new TorporError('conflict', 'The process has no terminal.');
    },
  };
}

async function spawnChild(
  spec: LaunchSpec,
  stdin: boolean | number,
  set: PipeSet | undefined,
): Promise<ChildProcess> {
  try {
    // /dev/stdout opens the pipe by name, which only the owner of the pipe may do.
    if (set && spec.user)
      for (const { writeFd } of Object.values(set)) fchownSync(writeFd, spec.user.uid, spec.user.gid);
    const child = spawn(spec.command, [...spec.args], {
      cwd: spec.cwd,
      env: { ...spec.env },
      stdio: [
        typeof stdin === 'number' ? stdin : stdin ? (set?.stdin.readFd ?? 'pipe') : 'ignore',
        set?.stdout.writeFd ?? 'pipe',
        set?.stderr.writeFd ?? 'pipe',
      ],
      // A session and a process group of its own, so that a signal also reaches the processes it starts.
      detached: true,
      ...(spec.user === undefined ? {} : { uid: spec.user.uid, gid: spec.user.gid }),
    });
    await once(child, 'spawn');
    return child;
  } catch (cause) {
    if (set !== undefined) closePipes(set);
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new TorporError('invalid_request', `${spec.command} cannot be started: ${reason}`, { cause });
  }
}

function openPipeEnds(set: PipeSet, stdin: boolean): PipeEnds {
  // The process has its ends now. Copies in the agent would keep the pipes open after it ends.
  for (const fd of [set.stdin.readFd, set.stdout.writeFd, set.stderr.writeFd]) closeFd(fd);
  if (!stdin) closeFd(set.stdin.writeFd);
  const reading = (fd: number) => new Socket({ fd, readable: true, writable: false });
  return {
    stdin: stdin ? new Socket({ fd: set.stdin.writeFd, readable: false, writable: true }) : undefined,
    stdout: reading(set.stdout.readFd),
    stderr: reading(set.stderr.readFd),
  };
}

/** For systems without a shell that makes pipes: the sockets that Node creates. */
function childPipeEnds(child: ChildProcess): PipeEnds {
  const { stdin, stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new TorporError('internal', 'The process has no output.');
  return { stdin: stdin ?? undefined, stdout, stderr };
}

/**
 * Waits for the exit of the process itself and for the output it wrote before. Its pipes may stay open longer, held by
 * a process that it left running. The agent keeps reading them, so that the left-over process neither blocks nor
 * breaks, but does not wait for their end.
 */
async function waitForEnd(
  child: ChildProcess,
  { stdin, stdout, stderr }: PipeEnds,
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
  await Promise.race([closed, waitForQuietPipes(output)]);
  output.finish();
  return status;
}

/**
 * The streams read only while nothing holds the process back, so a period counts only when it was read throughout. After
 * the timer one more poll of the event loop reads what arrived while this program itself did not get to run.
 */
async function waitForQuietPipes(output: OutputRing): Promise<void> {
  for (let rounds = 0; rounds < MAX_QUIET_CHECKS; ) {
    const { writtenBytes, isHoldingProcess } = output;
    await new Promise((resolve) => setTimeout(resolve, QUIET_MS).unref());
    await new Promise((resolve) => setImmediate(resolve));
    if (isHoldingProcess || output.isHoldingProcess) continue;
    if (output.writtenBytes === writtenBytes) return;
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
