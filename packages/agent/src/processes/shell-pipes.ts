/**
 * Creates real pipes for the processes that the agent starts. Node offers only sockets, and programs treat those
 * differently: `/dev/stdout` and `/dev/stderr` cannot be opened when they are sockets, and bash takes a socket on its
 * stdin for a remote login and reads ~/.bashrc. A shell creates pipes when it runs a pipeline. So the agent runs a
 * shell with a pipeline and opens its pipes through /proc before the shell ends.
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

/** A shell that takes longer than this is treated as unusable. */
const TIMEOUT_MS = 5000;

/** The descriptor on which the shells report their pids and wait for their end. */
const REPORT_FD = 3;

/** The descriptor on which each shell keeps its end of the pipe: its stdout is redirected while it reports. */
const KEPT_FD = 4;

export class ShellPipes {
  #spare: Promise<PipeSet | undefined> | undefined;
  readonly #shell: string;

  constructor(shell = '/bin/sh') {
    this.#shell = shell;
  }

  /** Undefined where there is no shell. Starts to create the next set in the background. */
  async take(): Promise<PipeSet | undefined> {
    // Cleared before the first await, so that the same pipes are not given to two processes.
    const making = this.#spare ?? makePipes(this.#shell);
    this.#spare = undefined;
    const taken = await making;
    if (taken !== undefined) this.#spare ??= makePipes(this.#shell);
    return taken;
  }

  /** Creates a set in advance. */
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
  for (const { readFd, writeFd } of [set.stdin, set.stdout, set.stderr])
    for (const fd of [readFd, writeFd]) closeFd(fd);
}

export function closeFd(fd: number): void {
  close(fd, () => {});
}

async function makePipes(shell: string): Promise<PipeSet | undefined> {
  // Each part of the pipeline reads its own pid from /proc/self/stat, which works in every shell.
  const part = (name: number) =>
    `{ exec ${KEPT_FD}>&1; read p r </proc/self/stat; echo ${name} $p >&${REPORT_FD}; read r <&${REPORT_FD}; }`;
  const child = spawn(shell, ['-c', [0, 1, 2, 3].map(part).join(' | ')], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
    env: {},
    cwd: '/',
  });
  const reports = child.stdio[REPORT_FD] as Duplex | undefined;
  reports?.on('error', () => {});
  try {
    const [stdin, stdout, stderr] = (await readPids(child)).slice(0, 3).map(openPipe);
    return stdin && stdout && stderr && { stdin, stdout, stderr };
  } catch {
    return undefined;
  } finally {
    reports?.destroy();
  }
}

async function readPids(child: ChildProcess): Promise<string[]> {
  const pids: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(reject, TIMEOUT_MS, new Error('The shell did not report its pids.'));
  child.once('error', reject);
  child.once('exit', () => reject(new Error('The shell ended.')));
  createInterface({ input: child.stdio[REPORT_FD] as Duplex }).on('line', (line) => {
    const [name, pid] = line.split(' ');
    pids[Number(name)] = pid ?? '';
    if (pids.filter(Boolean).length === 4) resolve();
  });
  await promise.finally(() => clearTimeout(timer));
  return pids;
}

/** Opens both ends of the pipe that this part of the pipeline writes to, so that opening neither end blocks. */
function openPipe(pid: string): Pipe {
  const path = `/proc/${pid}/fd/${KEPT_FD}`;
  const readFd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  if (!fstatSync(readFd).isFIFO()) throw new Error('The shell did not make a pipe.');
  return { readFd, writeFd: openSync(path, constants.O_WRONLY) };
}
