/** An error about one part of a checkpoint: what a start falls back to depends on the part. */
import { type CheckpointPart, TorporError } from '@torpor/protocol';
import type { Checkpoint } from './checkpoint.ts';

export class PartFault extends TorporError {
  readonly part: CheckpointPart;

  /** Has the code and message of `error`, and tells callers the part and the location in its details. */
  constructor(
    error: TorporError,
    { id, location }: Pick<Checkpoint, 'id' | 'location'>,
    part: CheckpointPart,
  ) {
    const known = error.with({ checkpointId: id, details: { location, part } });
    const { code, message, ...fields } = known.toBody();
    super(code, message, { ...fields, cause: error.cause });
    this.part = part;
  }
}

/** True for a fault of the files. An error that names no part is not known to be one. */
export function isFaultOfFiles(thrown: unknown): boolean {
  return thrown instanceof PartFault && thrown.part === 'files';
}
