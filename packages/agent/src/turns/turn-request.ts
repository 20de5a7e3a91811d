/** A request to deliver a turn: the process, its input, and whether the process is kept for the next turn. */
import { create } from '@bufbuild/protobuf';
import { type ProcessConfig, ProcessConfigSchema } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';

export interface TurnRequest {
  readonly id: string;
  /** The name under which the process is kept between turns; null for a process that serves only this turn. */
  readonly keep: string | null;
  readonly process: ProcessConfig;
  /** Written to the stdin of the process. */
  readonly input: string;
}

/** The id is part of a file name, so its form is checked. */
const ID = /^turn_[a-z0-9]{20}$/;

export function parseTurnRequest(body: unknown): TurnRequest {
  const { id, keep, process, input } = (body ?? {}) as Partial<Record<keyof TurnRequest, unknown>>;
  const { cmd, args, envs, cwd } = (process ?? {}) as Partial<
    Record<'cmd' | 'args' | 'envs' | 'cwd', unknown>
  >;
  const isOrder =
    typeof id === 'string' &&
    ID.test(id) &&
    (keep === null || typeof keep === 'string') &&
    typeof input === 'string' &&
    typeof cmd === 'string' &&
    isStringList(args) &&
    (cwd === undefined || typeof cwd === 'string');
  if (!isOrder) throw new TorporError('invalid_request', 'The body is not a turn.');
  const texts = Object.entries(envs ?? {}).filter(
    (pair): pair is [string, string] => typeof pair[1] === 'string',
  );
  const config = { cmd, args, envs: Object.fromEntries(texts), ...(cwd === undefined ? {} : { cwd }) };
  return { id, keep, process: create(ProcessConfigSchema, config), input };
}

function isStringList(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}
