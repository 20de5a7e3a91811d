/**
 * What a failed runsc means to whoever asked.
 *
 * runsc ends with 128 whatever was wrong (2 when it panicked), so the state of the container tells most of
 * it. That the disk refused an image is told by nothing but its words: these are the names that Go gives to
 * the errno codes, and the only text that is ever searched here.
 */
import { readFile } from 'node:fs/promises';
import type { ProgramEnd } from '@torpor/host';
import { type ErrorCode, TorporError } from '@torpor/protocol';
import type { ContainerState } from './runsc.ts';

export type Verb =
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

/** In which states each makes sense. Of the others the state tells nothing: they make containers, or take any. */
const BELONGS: Partial<Record<Verb, readonly ContainerState['is'][]>> = {
  start: ['created'],
  pause: ['running'],
  resume: ['paused'],
  checkpoint: ['running', 'paused'],
  kill: ['created', 'running', 'paused'],
};

const STORAGE: readonly (readonly [words: string, code: ErrorCode])[] = [
  ['no space left on device', 'storage_full'],
  ['disk quota exceeded', 'storage_full'],
  ['read-only file system', 'storage_readonly'],
];

export interface FailedCommand {
  readonly verb: Verb;
  readonly container: string;
  readonly status: ProgramEnd['status'];
  /** What runsc said, all of it. */
  readonly said: string;
}

/** `state` is null when the container could not be asked for it. */
export function runscFailure(failed: FailedCommand, state: ContainerState | null): TorporError {
  const { verb, container, status, said } = failed;
  const line = firstLine(said);
  const details = { verb, container, status, state: state?.is ?? null, said: said.slice(0, SAID_AT_MOST) };
  const belongs = BELONGS[verb];
  if (belongs !== undefined && state?.is === 'absent') {
    return new TorporError('not_found', `There is no container ${container}.`, { details });
  }
  const code = isAmong(state, belongs) ? codeOf(line) : 'conflict';
  return new TorporError(code, `runsc ${verb} failed: ${line}`, { details });
}

const SAID_AT_MOST = 4_000;

function isAmong(
  state: ContainerState | null,
  belongs: readonly ContainerState['is'][] | undefined,
): boolean {
  return state === null || belongs === undefined || belongs.includes(state.is);
}

function codeOf(line: string): ErrorCode {
  return STORAGE.find(([words]) => line.includes(words))?.[1] ?? 'internal';
}

/** Panics inside the sentry come with pages of its call stack. */
function firstLine(said: string): string {
  const [line] = said.trim().split('\n');
  return line === undefined || line === '' ? 'it did not say why' : line.replace(/:$/, '');
}

/**
 * What runsc has logged past an offset, the last message of it.
 *
 * It writes one JSON object after the other without a break between them. Inside a string every quotation
 * mark is escaped, so that this beginning is found nowhere else.
 */
export async function lastLogged(path: string, offset: number): Promise<string> {
  const log = (await readFile(path).catch(() => Buffer.alloc(0))).subarray(offset).toString();
  const begins = log.lastIndexOf('{"msg":');
  if (begins === -1) return '';
  try {
    const { msg } = JSON.parse(log.slice(begins)) as { readonly msg?: unknown };
    return typeof msg === 'string' ? msg : '';
  } catch {
    return log.slice(begins);
  }
}
