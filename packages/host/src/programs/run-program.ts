/**
 * Runs a system program to its end. The program gets its arguments as they are (no shell reads them) and a minimal
 * environment.
 */
import { TorporError } from '@torpor/protocol';
import { isMissing } from '../errno.ts';
import { minimalEnvironment } from './environment.ts';
import { type Launcher, type ProgramResult, sharedLauncher } from './launcher.ts';
import { ProgramFailure } from './program-failure.ts';

export interface ProgramOptions {
  readonly signal?: AbortSignal | undefined;
  /** A program that runs longer is killed. Without a limit the program may run forever. */
  readonly timeoutMs?: number;
  readonly cwd?: string;
  /** Variables besides the minimal environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Written to stdin. Without input, stdin is empty. */
  readonly input?: string;
  /** A file that receives stdout and stderr, for programs that leave processes running. */
  readonly outputFile?: string;
  /** Starts the program, for example inside another namespace. */
  readonly launcher?: Pick<Launcher, 'launch'>;
  /** Tells the operator how to install the program when it is missing. */
  readonly missingHint?: string;
}

/**
 * Resolves with any exit status. Rejects when the program could not be started, was aborted or timed out; by then the
 * program is dead, so the caller may clean up after it.
 */
export async function runProgram(
  program: string,
  args: readonly string[],
  { signal, timeoutMs, launcher = sharedLauncher, env, missingHint, ...rest }: ProgramOptions = {},
): Promise<ProgramResult> {
  signal?.throwIfAborted();
  const timeout = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
  const request = { program, args, env: { ...minimalEnvironment(), ...env }, ...rest };
  const either = AbortSignal.any([signal, timeout].filter((one) => one !== undefined));
  const result = await launcher.launch(request, either).catch((thrown: unknown) => {
    throw isMissing(thrown) ? programNotInstalled(program, missingHint, thrown) : thrown;
  });
  signal?.throwIfAborted();
  if (result.status === null && timeoutMs !== undefined && timeout?.aborted === true)
    throw programTimedOut(program, timeoutMs, { program, args });
  return result;
}

/** Runs a program and resolves to its stdout. Rejects with a `ProgramFailure` unless the exit status is 0 or accepted. */
export async function programOutput(
  program: string,
  args: readonly string[],
  {
    acceptedStatuses = [],
    ...options
  }: ProgramOptions & { readonly acceptedStatuses?: readonly number[] } = {},
): Promise<string> {
  const { status, stdout, stderr } = await runProgram(program, args, options);
  if (status === 0 || (status !== null && acceptedStatuses.includes(status))) return stdout;
  throw new ProgramFailure(program, args, status, stderr);
}

export function programTimedOut(
  program: string,
  timeoutMs: number,
  details: Readonly<Record<string, unknown>>,
): TorporError {
  return new TorporError('timeout', `${program} did not end within ${timeoutMs / 1000} s.`, { details });
}

export function programNotInstalled(
  program: string,
  hint = 'Run `torpor doctor`: it says what is missing and how to install it.',
  cause?: unknown,
): TorporError {
  return new TorporError('capability_unsupported', `The program ${program} is not installed.`, {
    hint,
    details: { program },
    cause,
  });
}
