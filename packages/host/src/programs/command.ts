/**
 * Runs one program of the system to its end: each argument as it is, within a bound, with nothing of the
 * server's environment but the search path (what it starts may live on, and keys lie in the environment).
 */
import { TorporError } from '@torpor/protocol';
import { isMissing } from '../storage-failure.ts';
import { type Launcher, launch, type ProgramEnd } from './launch.ts';
import { plainEnvironment } from './plain-environment.ts';

export interface CommandOptions {
  readonly signal: AbortSignal;
  /** Past this it hangs, and is killed. */
  readonly boundMs: number;
  readonly cwd?: string;
  /** A file that takes what it prints, for programs that leave something running. */
  readonly output?: string;
  /** Where it is started from. */
  readonly launcher?: Pick<Launcher, 'launch'>;
}

/**
 * Resolves however it ended. Rejects when it could not be started, was aborted or hung, and then only once
 * it is dead, so that whoever hears of it need not reckon with it any more.
 */
export async function runCommand(
  program: string,
  args: readonly string[],
  { signal, boundMs, launcher = { launch }, ...rest }: CommandOptions,
): Promise<ProgramEnd> {
  signal.throwIfAborted();
  const bound = AbortSignal.timeout(boundMs);
  const order = { program, args, env: plainEnvironment(), ...rest };
  const end = await launcher.launch(order, AbortSignal.any([signal, bound])).catch((thrown: unknown) => {
    throw isMissing(thrown) ? notInstalled(program, thrown) : thrown;
  });
  signal.throwIfAborted();
  if (end.status === null && bound.aborted) throw hung(program, boundMs, { program, args });
  return end;
}

export function hung(
  program: string,
  boundMs: number,
  details: Readonly<Record<string, unknown>>,
): TorporError {
  return new TorporError('timeout', `${program} did not end within ${boundMs / 1000} s.`, { details });
}

function notInstalled(program: string, cause: unknown): TorporError {
  return new TorporError('capability_unsupported', `The program ${program} is not installed.`, {
    hint: 'Run `torpor doctor`: it says what is missing and how to install it.',
    details: { program },
    cause,
  });
}
