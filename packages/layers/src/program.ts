/** Running the system's programs, each argument as it is; a shell never sees one. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Launcher, minimalEnvironment, sharedLauncher } from '@torpor/host';

export interface ProgramOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

interface RunOptions extends ProgramOptions {
  /** With which it may end as well as with 0. */
  readonly accepted?: readonly number[];
  /** Where it is started from. */
  readonly launcher?: Pick<Launcher, 'launch'>;
}

/** A program that ended otherwise than well. What it said is for people. */
export class ProgramFailure extends Error {
  override readonly name = 'ProgramFailure';
  readonly status: number | null;

  constructor(program: string, status: number | null, said: string) {
    const end = status === null ? 'was ended' : `ended with ${status}`;
    super(`${program} ${end}${said === '' ? '' : `: ${said}`}`);
    this.status = status;
  }
}

/** As much of what a program says as anybody reads. */
const SAID_AT_MOST = 2000;

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** Runs a program to its end. What it prints is expected to be little. */
export async function run(
  program: string,
  args: readonly string[],
  { cwd, env, signal, accepted = [], launcher = sharedLauncher }: RunOptions = {},
): Promise<string> {
  signal?.throwIfAborted();
  const place = cwd === undefined ? {} : { cwd };
  const order = { program, args, env: { ...minimalEnvironment(), ...env }, ...place };
  const { status, stdout, stderr } = await launcher.launch(order, signal);
  signal?.throwIfAborted();
  const isWell = status === 0 || (status !== null && accepted.includes(status));
  if (!isWell) throw new ProgramFailure(program, status, said(stderr));
  return stdout;
}

/** What a program prints, as it prints it. Ends only when the program has ended well. */
export async function* output(
  program: string,
  args: readonly string[],
  options: ProgramOptions = {},
  input: Iterable<Buffer> | AsyncIterable<Buffer> = [],
): AsyncGenerator<Buffer> {
  options.signal?.throwIfAborted();
  const child = start(program, args, options);
  const ended = endOf(program, child, options.signal);
  const fed = pipeline(input, child.stdin).then(
    () => undefined,
    (thrown: unknown) => ({ thrown }),
  );
  try {
    yield* printed(child, ended);
    const failure = await ended.catch((thrown: unknown) => ({ thrown }));
    const cause = inputFailure(await fed) ?? failure;
    if (cause !== undefined) throw cause.thrown;
  } finally {
    // Reached early when whoever reads has had enough.
    child.kill('SIGKILL');
    await ended.catch(() => {});
  }
}

/** A program that cannot be started has no output either; that it was not started says more. */
async function* printed(child: Child, ended: Promise<undefined>): AsyncGenerator<Buffer> {
  try {
    yield* child.stdout as AsyncIterable<Buffer>;
  } catch (thrown) {
    child.kill('SIGKILL');
    await ended;
    throw thrown;
  }
}

/** A program that has read enough breaks its pipe; only another failure of its input is one. */
function inputFailure(failed: { readonly thrown: unknown } | undefined): typeof failed {
  const broken = ['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_DESTROYED'];
  const code = (failed?.thrown as NodeJS.ErrnoException | undefined)?.code ?? '';
  return broken.includes(code) ? undefined : failed;
}

function said(heard: string): string {
  return heard.trim().slice(0, SAID_AT_MOST);
}

function start(program: string, args: readonly string[], { cwd, env, signal }: ProgramOptions): Child {
  return spawn(program, args, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...minimalEnvironment(), ...env },
    killSignal: 'SIGKILL',
    ...(cwd === undefined ? {} : { cwd }),
    ...(signal === undefined ? {} : { signal }),
  });
}

function endOf(program: string, child: Child, signal: AbortSignal | undefined): Promise<undefined> {
  let heard = '';
  child.stderr.on('data', (chunk: Buffer) => {
    if (heard.length < SAID_AT_MOST) heard += chunk.toString();
  });
  const ended = new Promise<undefined>((resolve, reject) => {
    let failure: { readonly thrown: unknown } | undefined;
    child.once('error', (error) => {
      failure = { thrown: signal?.aborted === true ? signal.reason : error };
      // One that was told to end may still be writing; one that was never started never closes.
      if (child.pid === undefined) reject(failure.thrown);
    });
    child.once('close', (status) => {
      if (failure !== undefined) reject(failure.thrown);
      else if (status === 0) resolve(undefined);
      else reject(new ProgramFailure(program, status, said(heard)));
    });
  });
  // Whoever reads the output hears of it at the output's end.
  ended.catch(() => {});
  return ended;
}
