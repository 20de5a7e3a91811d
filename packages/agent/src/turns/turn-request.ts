/** A turn as it is asked for: which process, what it is told, and whether it stays for the next. */
import { create } from '@bufbuild/protobuf';
import { type ProcessConfig, ProcessConfigSchema } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';

export interface TurnOrder {
  readonly id: string;
  /** The name under which the process stays between turns; null for one of its own. */
  readonly keep: string | null;
  readonly process: ProcessConfig;
  /** Written to its stdin. */
  readonly input: string;
}

/** It becomes the name of a file. */
const ID = /^turn_[a-z0-9]{20}$/;

export function parseOrder(body: unknown): TurnOrder {
  const { id, keep, process, input } = (body ?? {}) as Partial<Record<keyof TurnOrder, unknown>>;
  const { cmd, args, envs, cwd } = (process ?? {}) as Partial<
    Record<'cmd' | 'args' | 'envs' | 'cwd', unknown>
  >;
  const isOrder =
    typeof id === 'string' &&
    ID.test(id) &&
    (keep === null || typeof keep === 'string') &&
    typeof input === 'string' &&
    typeof cmd === 'string' &&
    isTexts(args) &&
    (cwd === undefined || typeof cwd === 'string');
  if (!isOrder) throw new TorporError('invalid_request', 'The body is not a turn.');
  const texts = Object.entries(envs ?? {}).filter(
    (pair): pair is [string, string] => typeof pair[1] === 'string',
  );
  const config = { cmd, args, envs: Object.fromEntries(texts), ...(cwd === undefined ? {} : { cwd }) };
  return { id, keep, process: create(ProcessConfigSchema, config), input };
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}
