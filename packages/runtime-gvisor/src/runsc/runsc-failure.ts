/**
 * Turns a failed runsc command into an error with a code.
 *
 * runsc exits with 128 for every failure (with 2 after a panic), so the code comes from the state of the container. A
 * full or read-only disk shows only in the message: as the text that Go has for the errno. No other text is searched.
 */
import { readFile, stat } from 'node:fs/promises';
import type { ProgramResult } from '@torpor/host';
import { type ErrorCode, TorporError } from '@torpor/protocol';
import { z } from 'zod';
import type { ContainerState } from './runsc-container.ts';

export type RunscCommand =
  | 'create'
  | 'start'
  | 'run'
  | 'pause'
  | 'resume'
  | 'checkpoint'
  | 'restore'
  | 'kill'
  | 'delete'
  | 'state';

/** The states in which each command makes sense. The commands left out create a container, or take any state. */
const ALLOWED_STATES: Partial<Record<RunscCommand, readonly ContainerState['is'][]>> = {
  start: ['created'],
  pause: ['running'],
  resume: ['frozen'],
  checkpoint: ['running', 'frozen'],
  kill: ['created', 'running', 'frozen'],
};

const STORAGE: readonly (readonly [words: string, code: ErrorCode])[] = [
  ['no space left on device', 'storage_full'],
  ['disk quota exceeded', 'storage_full'],
  ['read-only file system', 'storage_readonly'],
];

export interface FailedCommand {
  readonly subcommand: RunscCommand;
  readonly container: string;
  readonly status: ProgramResult['status'];
  /** All that runsc printed or logged. */
  readonly output: string;
}

/** `state` is null when it could not be read. */
export function runscFailure(failed: FailedCommand, state: ContainerState | null): TorporError {
  const { subcommand, container, status, output } = failed;
  const line = firstLine(output);
  const details = {
    verb: subcommand,
    container,
    status,
    state: state?.is ?? null,
    said: output.slice(0, MAX_OUTPUT_CHARS),
  };
  const allowed = ALLOWED_STATES[subcommand];
  if (allowed !== undefined && state?.is === 'absent') {
    return new TorporError('not_found', `There is no container ${container}.`, { details });
  }
  const code = isAllowed(state, allowed) ? codeOf(line) : 'conflict';
  return new TorporError(code, `runsc ${subcommand} failed: ${line}`, { details });
}

const MAX_OUTPUT_CHARS = 4_000;

function isAllowed(
  state: ContainerState | null,
  allowed: readonly ContainerState['is'][] | undefined,
): boolean {
  return state === null || allowed === undefined || allowed.includes(state.is);
}

function codeOf(line: string): ErrorCode {
  return STORAGE.find(([words]) => line.includes(words))?.[1] ?? 'internal';
}

/** A panic of the sentry prints pages of its call stack after the first line. */
function firstLine(output: string): string {
  const [line] = output.trim().split('\n');
  return line === undefined || line === '' ? 'it did not say why' : line.replace(/:$/, '');
}

const logEntrySchema = z.object({ msg: z.string() });

export function logSize(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}

/**
 * The last message that runsc has logged past an offset; empty when there is none.
 *
 * runsc writes JSON objects without a separator between them. Quotation marks inside a string are escaped, so the text
 * `{"msg":` occurs only where an object begins.
 */
export async function lastLogged(path: string, offset: number): Promise<string> {
  const log = (await readFile(path).catch(() => Buffer.alloc(0))).subarray(offset).toString();
  const begins = log.lastIndexOf('{"msg":');
  if (begins === -1) return '';
  try {
    const entry = logEntrySchema.safeParse(JSON.parse(log.slice(begins)));
    return entry.success ? entry.data.msg : '';
  } catch {
    return log.slice(begins);
  }
}
