/**
 * Runs a system program whose input and output are too large to hold in memory. The program is a child of this process,
 * not of the launcher, because its output passes through this process.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { isMissing } from '../errno.ts';
import { minimalEnvironment } from './environment.ts';
import { ProgramFailure } from './program-failure.ts';
import { type ProgramOptions, programNotInstalled } from './run-program.ts';

type StreamOptions = Pick<ProgramOptions, 'cwd' | 'env' | 'signal' | 'missingHint'> & {
  /** Written to stdin as fast as the program reads. */
  readonly input?: Iterable<Buffer> | AsyncIterable<Buffer>;
};

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** The longest part of stderr that is kept. */
const MAX_STDERR = 2_000;

/**
 * Yields stdout while the program runs, and ends only after exit status 0. Any other end throws: a `ProgramFailure`, the
 * abort reason, or the failure of the input. The program is killed when the consumer stops reading.
 */
export async function* streamProgram(
  program: string,
  args: readonly string[],
  { input = [], ...options }: StreamOptions = {},
): AsyncGenerator<Buffer> {
  options.signal?.throwIfAborted();
  const child = start(program, args, options);
  const ended = endOf(program, args, child, options);
  const fed = pipeline(input, child.stdin).then(
    () => undefined,
    (thrown: unknown) => ({ thrown }),
  );
  try {
    yield* outputOf(child, ended);
    const failure = await ended.catch((thrown: unknown) => ({ thrown }));
    const cause = inputFailure(await fed) ?? failure;
    if (cause !== undefined) throw cause.thrown;
  } finally {
    child.kill('SIGKILL');
    await ended.catch(() => {});
  }
}

/** Reading the output of a program that could not be started fails too; the failed start is the better error. */
async function* outputOf(child: Child, ended: Promise<undefined>): AsyncGenerator<Buffer> {
  try {
    yield* child.stdout as AsyncIterable<Buffer>;
  } catch (thrown) {
    child.kill('SIGKILL');
    await ended;
    throw thrown;
  }
}

/** A program that has read enough input closes its stdin. That is no failure of the input. */
function inputFailure(failed: { readonly thrown: unknown } | undefined): typeof failed {
  const closedByReader = ['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED'];
  const code = (failed?.thrown as NodeJS.ErrnoException | undefined)?.code ?? '';
  return closedByReader.includes(code) ? undefined : failed;
}

function start(program: string, args: readonly string[], { cwd, env, signal }: StreamOptions): Child {
  return spawn(program, args, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...minimalEnvironment(), ...env },
    killSignal: 'SIGKILL',
    ...(cwd === undefined ? {} : { cwd }),
    ...(signal === undefined ? {} : { signal }),
  });
}

function endOf(
  program: string,
  args: readonly string[],
  child: Child,
  { signal, missingHint }: StreamOptions,
): Promise<undefined> {
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => {
    if (stderr.length < MAX_STDERR) stderr += chunk.toString();
  });
  const ended = new Promise<undefined>((resolve, reject) => {
    let failure: { readonly thrown: unknown } | undefined;
    child.once('error', (error) => {
      if (signal?.aborted === true) failure = { thrown: signal.reason };
      else failure = { thrown: isMissing(error) ? programNotInstalled(program, missingHint, error) : error };
      // An aborted program may still be writing, so its `close` is awaited. A program that never started never closes.
      if (child.pid === undefined) reject(failure.thrown);
    });
    child.once('close', (status) => {
      if (failure !== undefined) reject(failure.thrown);
      else if (status === 0) resolve(undefined);
      else reject(new ProgramFailure(program, args, status, stderr));
    });
  });
  // The consumer gets this rejection at the end of the output.
  ended.catch(() => {});
  return ended;
}
