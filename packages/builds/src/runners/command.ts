/**
 * Any program: it gets the goal on stdin and a workspace to fill, and what is in the workspace when it ends is what
 * it made. It runs in a throwaway sandbox, or on this machine when the operator has decided so.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, lstat, mkdir, mkdtemp, open, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { TorporError } from '@torpor/protocol';
import { WORKSPACE } from '../pipeline/workspace.ts';
import type { BuildSandboxes } from '../ports/sandboxes.ts';
import type { FileLimits, GeneratedFile } from './generated-files.ts';
import type { Runner, RunnerOrder } from './runner.ts';

export interface CommandOptions {
  /** Run by a shell, in the workspace. */
  readonly command: string;
  readonly timeoutMs: number;
  /** What its environment has besides what every program has. */
  readonly env: Readonly<Record<string, string>>;
  readonly limits: FileLimits;
}

/** In a sandbox of its own, which is gone before anything is done with what it made (R5, R6). */
export function sandboxCommandRunner(sandboxes: BuildSandboxes, options: CommandOptions): Runner {
  return {
    async run({ org, jobId, goal, previous, output }, signal) {
      const lifetimeSeconds = Math.ceil(options.timeoutMs / 1_000) + 60;
      const id = await sandboxes.create({ org, jobId, lifetimeSeconds }, signal);
      try {
        await sandboxes.write(org, id, WORKSPACE, [...previous, keep()], signal);
        const { command, timeoutMs, env } = options;
        const order = { command, cwd: WORKSPACE, stdin: goal, env, timeoutMs, output };
        const { exitCode } = await sandboxes.run(org, id, order, signal);
        if (exitCode !== 0) throw failed(`exit ${exitCode}`);
        const made = await sandboxes.read(org, id, WORKSPACE, options.limits, signal);
        return made.filter(({ path }) => path !== KEEP);
      } finally {
        await sandboxes.kill(org, id);
      }
    },
  };
}

/** Makes the workspace be there, also when nothing is in it yet. */
const KEEP = '.torpor-workspace';
function keep(): GeneratedFile {
  return { path: KEEP, content: new Uint8Array(), executable: false };
}

/** On this machine: the program is the operator's own, and is trusted with what the server's user may do. */
export function hostCommandRunner(options: CommandOptions): Runner {
  return {
    async run(order, signal) {
      const workspace = await mkdtemp(join(tmpdir(), 'torpor-build-'));
      try {
        await putFiles(workspace, order.previous);
        await runProgram(options, order, workspace, signal);
        return await takeFiles(workspace, options.limits);
      } finally {
        await rm(workspace, { recursive: true, force: true });
      }
    },
  };
}

async function runProgram(
  { command, timeoutMs, env }: CommandOptions,
  { goal, output }: RunnerOrder,
  cwd: string,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const child = spawn('/bin/sh', ['-c', command], {
    cwd,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: 'pipe',
    // A group of its own, so that whatever it started ends with it.
    detached: true,
  });
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  const end = () => endGroup(child.pid);
  bounded.addEventListener('abort', end);
  for (const channel of ['stdout', 'stderr'] as const) {
    const decoder = new StringDecoder('utf8');
    child[channel].on('data', (bytes: Buffer) => output(channel, decoder.write(bytes)));
  }
  // A program need not read its goal.
  child.stdin.on('error', () => {});
  child.stdin.end(goal);
  const [code, by] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  bounded.removeEventListener('abort', end);
  end();
  signal.throwIfAborted();
  if (bounded.aborted) throw new TorporError('timeout', `The runner was ended after ${timeoutMs / 1_000} s.`);
  if (code !== 0) throw failed(by ?? `exit ${code}`);
}

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // Nothing of it is left.
  }
}

async function putFiles(workspace: string, files: readonly GeneratedFile[]): Promise<void> {
  for (const { path, content, executable } of files) {
    const place = join(workspace, path);
    await mkdir(dirname(place), { recursive: true });
    await writeFile(place, content);
    if (executable) await chmod(place, 0o755);
  }
}

const LEFT_OUT = new Set(['node_modules', '.git']);

/** Plain files only: a link could lead anywhere on this machine. Stops as soon as it is too much. */
async function takeFiles(workspace: string, limits: FileLimits): Promise<GeneratedFile[]> {
  const files: GeneratedFile[] = [];
  let total = 0;
  for await (const path of plainFiles(workspace, '')) {
    const file = await readPlain(join(workspace, path), limits);
    total += file.content.byteLength;
    if (files.push({ path, ...file }) > limits.count || total > limits.totalBytes) {
      throw new TorporError('invalid_request', 'The runner made more than is allowed.');
    }
  }
  return files;
}

async function* plainFiles(root: string, below: string): AsyncGenerator<string> {
  for (const entry of await readdir(join(root, below), { withFileTypes: true })) {
    const path = below === '' ? entry.name : `${below}/${entry.name}`;
    if (entry.isDirectory() && !LEFT_OUT.has(entry.name)) yield* plainFiles(root, path);
    else if (entry.isFile()) yield path;
  }
}

async function readPlain(path: string, { fileBytes }: FileLimits): Promise<Omit<GeneratedFile, 'path'>> {
  const { size, mode } = await lstat(path);
  if (size > fileBytes) {
    throw new TorporError(
      'invalid_request',
      `The runner made a file of ${size} bytes; ${fileBytes} are allowed.`,
    );
  }
  const handle = await open(path, 'r');
  try {
    return { content: new Uint8Array(await handle.readFile()), executable: (mode & 0o100) !== 0 };
  } finally {
    await handle.close();
  }
}

function failed(how: string): TorporError {
  return new TorporError('conflict', `The runner failed (${how}).`, {
    hint: 'The log of the build has what it said.',
  });
}
