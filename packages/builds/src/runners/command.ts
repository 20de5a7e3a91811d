/**
 * A runner that starts any program: the program gets the goal on stdin and writes files into a workspace. It runs in a
 * temporary sandbox, or on the server's machine when the operator has configured that.
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
import type { Runner, RunnerInput } from './runner.ts';

export interface CommandOptions {
  /** Run by a shell, in the workspace. */
  readonly command: string;
  readonly timeoutMs: number;
  /** Additional environment variables. */
  readonly env: Readonly<Record<string, string>>;
  readonly limits: FileLimits;
}

/** Runs the program in a sandbox of its own, which is killed before its files are used (R5, R6). */
export function sandboxCommandRunner(sandboxes: BuildSandboxes, options: CommandOptions): Runner {
  return {
    async run({ org, jobId, goal, previous, output }, signal) {
      const lifetimeSeconds = Math.ceil(options.timeoutMs / 1_000) + 60;
      const id = await sandboxes.create({ org, jobId, lifetimeSeconds }, signal);
      try {
        await sandboxes.write(org, id, WORKSPACE, [...previous, placeholder()], signal);
        const { command, timeoutMs, env } = options;
        const program = { command, cwd: WORKSPACE, stdin: goal, env, timeoutMs, output };
        const { exitCode } = await sandboxes.run(org, id, program, signal);
        if (exitCode !== 0) throw runnerFailed(`exit ${exitCode}`);
        const made = await sandboxes.read(org, id, WORKSPACE, options.limits, signal);
        return made.filter(({ path }) => path !== PLACEHOLDER);
      } finally {
        await sandboxes.kill(org, id);
      }
    },
  };
}

/** A placeholder file, so that the workspace exists even when it is empty. */
const PLACEHOLDER = '.torpor-workspace';
function placeholder(): GeneratedFile {
  return { path: PLACEHOLDER, content: new Uint8Array(), executable: false };
}

/**
 * Runs the program on the server's machine. It is the operator's own program and has the rights of the server's user.
 */
export function hostCommandRunner(options: CommandOptions): Runner {
  return {
    async run(input, signal) {
      const workspace = await mkdtemp(join(tmpdir(), 'torpor-build-'));
      try {
        await writeWorkspace(workspace, input.previous);
        await runProgram(options, input, workspace, signal);
        return await readWorkspace(workspace, options.limits);
      } finally {
        await rm(workspace, { recursive: true, force: true });
      }
    },
  };
}

async function runProgram(
  { command, timeoutMs, env }: CommandOptions,
  { goal, output }: RunnerInput,
  cwd: string,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const child = spawn('/bin/sh', ['-c', command], {
    cwd,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: 'pipe',
    // A process group of its own, so that its child processes are killed with it.
    detached: true,
  });
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  const end = () => killGroup(child.pid);
  bounded.addEventListener('abort', end);
  for (const channel of ['stdout', 'stderr'] as const) {
    const decoder = new StringDecoder('utf8');
    child[channel].on('data', (bytes: Buffer) => output(channel, decoder.write(bytes)));
  }
  // A program may end without reading the goal.
  child.stdin.on('error', () => {});
  child.stdin.end(goal);
  const [code, by] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  bounded.removeEventListener('abort', end);
  end();
  signal.throwIfAborted();
  if (bounded.aborted)
    throw new TorporError('timeout', `The runner was stopped after ${timeoutMs / 1_000} s.`);
  if (code !== 0) throw runnerFailed(by ?? `exit ${code}`);
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The process group is gone already.
  }
}

async function writeWorkspace(workspace: string, files: readonly GeneratedFile[]): Promise<void> {
  for (const { path, content, executable } of files) {
    const place = join(workspace, path);
    await mkdir(dirname(place), { recursive: true });
    await writeFile(place, content);
    if (executable) await chmod(place, 0o755);
  }
}

const SKIPPED_DIRECTORIES = new Set(['node_modules', '.git']);

/** Reads regular files only, because a link could point anywhere on this machine. Stops at the limits. */
async function readWorkspace(workspace: string, limits: FileLimits): Promise<GeneratedFile[]> {
  const files: GeneratedFile[] = [];
  let total = 0;
  for await (const path of listFiles(workspace, '')) {
    const file = await readBounded(join(workspace, path), limits);
    total += file.content.byteLength;
    if (files.push({ path, ...file }) > limits.count || total > limits.totalBytes) {
      throw new TorporError('invalid_request', 'The runner made more files or bytes than allowed.');
    }
  }
  return files;
}

async function* listFiles(root: string, below: string): AsyncGenerator<string> {
  for (const entry of await readdir(join(root, below), { withFileTypes: true })) {
    const path = below === '' ? entry.name : `${below}/${entry.name}`;
    if (entry.isDirectory() && !SKIPPED_DIRECTORIES.has(entry.name)) yield* listFiles(root, path);
    else if (entry.isFile()) yield path;
  }
}

async function readBounded(path: string, { fileBytes }: FileLimits): Promise<Omit<GeneratedFile, 'path'>> {
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

function runnerFailed(how: string): TorporError {
  return new TorporError('conflict', `The runner failed (${how}).`, {
    hint: 'The log of the build has its output.',
  });
}
