/**
 * Real pipes for the processes we start. Node offers only sockets, and those are not the same to a
 * program: `/dev/stdout` and `/dev/stderr` cannot be opened when a socket stands behind them, and bash
 * takes a socket on its stdin for a remote login and reads ~/.bashrc. A shell makes pipes whenever it
 * runs a pipeline; ours runs one, and we open them through /proc before it ends.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { close, constants, fstatSync, openSync } from 'node:fs';
import { createInterface } from 'node:readline';
import type { Duplex } from 'node:stream';

interface Pipe {
  readonly readFd: number;
  readonly writeFd: number;
}

export interface PipeSet {
  readonly stdin: Pipe;
  readonly stdout: Pipe;
  readonly stderr: Pipe;
}

/** A shell that takes longer than this is none we can use. */
const PATIENCE_MS = 5000;

/** Descriptor on which the shells tell their pids and wait for their end. */
const TALK_FD = 3;

/** Where each keeps its end of the pipe: its stdout is something else while it talks. */
const KEPT_FD = 4;

export class ShellPipes {
  #spare: Promise<PipeSet | undefined> | undefined;
  readonly #shell: string;

  constructor(shell = '/bin/sh') {
    this.#shell = shell;
  }

  /** Undefined where there is no shell. The next set is made while nobody waits for it. */
  async take(): Promise<PipeSet | undefined> {
    // Taken before anything is awaited: the same pipes must not go to two processes.
    const making = this.#spare ?? makePipes(this.#shell);
    this.#spare = undefined;
    const taken = await making;
    if (taken !== undefined) this.#spare ??= makePipes(this.#shell);
    return taken;
  }

  /** Has a set ready before anybody asks for one. */
  async warmUp(): Promise<void> {
    this.#spare ??= makePipes(this.#shell);
    await this.#spare;
  }

  async close(): Promise<void> {
    const spare = await this.#spare;
    this.#spare = undefined;
    if (spare !== undefined) closePipes(spare);
  }
}

export function closePipes(set: PipeSet): void {
  for (const { readFd, writeFd } of Object.values(set) as Pipe[])
    for (const fd of [readFd, writeFd]) closeFd(fd);
}

export function closeFd(fd: number): void {
  close(fd, () => {});
}

async function makePipes(shell: string): Promise<PipeSet | undefined> {
  // Each part of the pipeline reads its own pid where every shell can: from the file that is its own.
  const part = (name: number) =>
    `{ exec ${KEPT_FD}>&1; read p r </proc/self/stat; echo ${name} $p >&${TALK_FD}; read r <&${TALK_FD}; }`;
  const child = spawn(shell, ['-c', [0, 1, 2, 3].map(part).join(' | ')], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
    env: {},
    cwd: '/',
  });
  const talk = child.stdio[TALK_FD] as Duplex | undefined;
  talk?.on('error', () => {});
  try {
    const [stdin, stdout, stderr] = (await pidsOf(child)).slice(0, 3).map(openPipe);
    return stdin && stdout && stderr && { stdin, stdout, stderr };
  } catch {
    return undefined;
  } finally {
    talk?.destroy();
  }
}

async function pidsOf(child: ChildProcess): Promise<string[]> {
  const pids: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(reject, PATIENCE_MS, new Error('The shell said nothing.'));
  child.once('error', reject);
  child.once('exit', () => reject(new Error('The shell ended.')));
  createInterface({ input: child.stdio[TALK_FD] as Duplex }).on('line', (line) => {
    const [name, pid] = line.split(' ');
    pids[Number(name)] = pid ?? '';
    if (pids.filter(Boolean).length === 4) resolve();
  });
  await promise.finally(() => clearTimeout(timer));
  return pids;
}

/** The pipe that this part of the pipeline writes to: both its ends, so that none waits for the other. */
function openPipe(pid: string): Pipe {
  const path = `/proc/${pid}/fd/${KEPT_FD}`;
  const readFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  if (!fstatSync(readFd).isFIFO()) throw new Error('The shell did not make a pipe.');
  return { readFd, writeFd: openSync(path, constants.O_WRONLY) };
}
