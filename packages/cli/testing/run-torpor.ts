/** Runs the CLI as a real process, or inside the test process, which is faster. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { colorsFor } from '../src/colors.ts';
import type { Io } from '../src/io.ts';
import { run } from '../src/main.ts';

export const PROGRAM = join(import.meta.dirname, '../bin/torpor.mjs');

export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Absent: stdin is a pipe that stays open. */
  readonly stdin?: string;
  readonly cwd?: string;
}

/** The process gets a minimal environment, not the environment of the test. */
export function startTorpor(
  args: readonly string[],
  { env = {}, stdin, cwd }: RunOptions = {},
): ChildProcess {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    env: {
      PATH: process.env['PATH'],
      HOME: '/nonexistent',
      TORPOR_BASE: process.env['TORPOR_BASE'],
      ...env,
    },
    stdio: 'pipe',
    ...(cwd === undefined ? {} : { cwd }),
  });
  child.stdin?.on('error', () => {});
  if (stdin !== undefined) child.stdin?.end(stdin);
  return child;
}

/** A server on the process runtime and a free port. Resolves when it is ready. */
export async function startServer(dataDir: string): Promise<ChildProcess> {
  const options = ['--runtime', 'process', '--port', '0', '--log-level', 'silent'];
  const child = startTorpor(['up', '--data-dir', dataDir, ...options]);
  let printed = '';
  const ready = new Promise<void>((resolve) => {
    // Reads all output: a server whose stdout is full would block.
    child.stdout?.on('data', (chunk) => {
      printed += String(chunk);
      if (printed.includes('torpor ready')) resolve();
    });
  });
  const ended = once(child, 'exit').then(() => {
    throw new Error(`The server did not start: ${printed}`);
  });
  ended.catch(() => {});
  await Promise.race([ready, ended]);
  return child;
}

export async function stopServer(server: ChildProcess | undefined): Promise<void> {
  if (server?.exitCode !== null) return;
  server.kill('SIGTERM');
  await once(server, 'exit');
}

export async function torpor(args: readonly string[], options: RunOptions = {}): Promise<CommandResult> {
  const child = startTorpor(args, options);
  const [stdout, stderr] = await Promise.all([
    text(child.stdout as NodeJS.ReadableStream),
    text(child.stderr as NodeJS.ReadableStream),
    child.exitCode === null ? once(child, 'close') : undefined,
  ]);
  return { code: child.exitCode, stdout, stderr };
}

export async function torporInProcess(
  args: readonly string[],
  env: RunOptions['env'] = {},
): Promise<CommandResult> {
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const colors = colorsFor({}, env);
  const code = await run(
    args,
    {
      ...streams,
      env,
      home: '/nonexistent',
      cwd: '/',
      colors,
      errorColors: colors,
      now: Date.now,
    } as unknown as Io,
    new AbortController().signal,
  );
  streams.stdout.end();
  streams.stderr.end();
  return { code, stdout: await text(streams.stdout), stderr: await text(streams.stderr) };
}
