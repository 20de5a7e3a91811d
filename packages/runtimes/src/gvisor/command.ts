/**
 * Runs one program of the system to its end: each argument as it is, within a bound, with nothing of the
 * server's environment but the search path (what it starts may live on, and keys lie in the environment).
 */
import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { TorporError } from '@torpor/protocol';

export interface CommandOptions {
  readonly signal: AbortSignal;
  /** Past this it hangs, and is killed. */
  readonly boundMs: number;
  readonly cwd?: string;
  /**
   * An open file that takes what it prints. Needed by programs that leave something running: that keeps
   * the output it was given, and the end of a pipe would not be the end of the program.
   */
  readonly output?: number;
}

export interface CommandEnd {
  /** Null when a signal ended it. */
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const SEARCHED = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Resolves however it ended. Rejects when it could not be started, was aborted or hung, and then only once
 * it is dead, so that whoever hears of it need not reckon with it any more.
 */
export async function runCommand(
  program: string,
  args: readonly string[],
  { signal, boundMs, cwd, output }: CommandOptions,
): Promise<CommandEnd> {
  signal.throwIfAborted();
  const kept = output ?? 'pipe';
  const child = spawn(program, args, {
    stdio: ['ignore', kept, kept],
    env: { PATH: searchPath(), LC_ALL: 'C.UTF-8' },
    ...(cwd === undefined ? {} : { cwd }),
  });
  const bound = AbortSignal.timeout(boundMs);
  const kill = () => child.kill('SIGKILL');
  signal.addEventListener('abort', kill);
  bound.addEventListener('abort', kill);
  try {
    const ended = new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (status) => resolve(status));
    });
    const printed = [child.stdout, child.stderr].map((stream) => (stream === null ? '' : text(stream)));
    const [status, stdout = '', stderr = ''] = await Promise.all([ended, ...printed]);
    signal.throwIfAborted();
    if (status === null && bound.aborted) throw hung(program, args, boundMs);
    return { status, stdout, stderr };
  } catch (thrown) {
    throw (thrown as NodeJS.ErrnoException).code === 'ENOENT' ? notInstalled(program, thrown) : thrown;
  } finally {
    signal.removeEventListener('abort', kill);
    bound.removeEventListener('abort', kill);
  }
}

/** Programs of administrators lie where the search path of others does not lead. */
export function searchPath(): string {
  return [process.env['PATH'], SEARCHED].filter(Boolean).join(':');
}

function hung(program: string, args: readonly string[], boundMs: number): TorporError {
  return new TorporError('timeout', `${program} did not end within ${boundMs / 1000} s.`, {
    details: { program, args },
  });
}

function notInstalled(program: string, cause: unknown): TorporError {
  return new TorporError('capability_unsupported', `The program ${program} is not installed.`, {
    hint: 'Run `torpor doctor`: it says what is missing and how to install it.',
    details: { program },
    cause,
  });
}
