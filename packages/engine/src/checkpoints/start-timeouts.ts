/**
 * Recognises memory images whose restore times out every time.
 *
 * One timeout proves nothing, because the machine may be busy. Two timeouts, with a successful restore of another
 * image after the first, count as a fault of the image. The count is in the checkpoint's row, so that it survives
 * the server. The time of the last successful restore is in memory: a new server concludes nothing before it has restored
 * an image itself.
 */
import { type CheckpointFault, TorporError } from '@torpor/protocol';
import type { Context } from '../context.ts';
import type { Clock } from '../ports/clock.ts';
import type { Checkpoint } from './checkpoint.ts';
import { recordStartFaultOfMemory } from './health-record.ts';
import { PartFault } from './part-fault.ts';

const TIMEOUTS_TO_CONCLUDE = 2;

/** When this server last restored the memory of any sandbox. */
export class RestoreHistory {
  readonly #clock: Clock;
  #lastAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  succeeded(): void {
    this.#lastAt = this.#clock.now();
  }

  /** A restore that ended in the same millisecond counts: it ended after the restore that timed out. */
  hasSucceededSince(at: number): boolean {
    return this.#lastAt >= at;
  }
}

/** The fault of the memory image, if the timeouts so far and the restores of others prove one. Records it. */
export async function concludeFromTimeouts(
  ctx: Context,
  checkpoint: Checkpoint,
): Promise<TorporError | undefined> {
  const known = startFaultOf(checkpoint);
  if (known === undefined) return undefined;
  if (known.code !== 'timeout') return asError(checkpoint, known);
  const times = known.times ?? 1;
  if (times < TIMEOUTS_TO_CONCLUDE || !ctx.restores.hasSucceededSince(known.foundAt)) return undefined;
  const fault: CheckpointFault = {
    ...known,
    code: 'checkpoint_incompatible',
    detail: `its memory did not come back in time, ${times} times, while that of other sandboxes did`,
  };
  await recordStartFaultOfMemory(ctx, checkpoint, fault);
  return asError(checkpoint, fault);
}

/** Counts a start from memory that timed out. Returns the checkpoint with the new count. */
export async function recordStartTimeout(
  ctx: Context,
  checkpoint: Checkpoint,
  { message: detail }: TorporError,
): Promise<Checkpoint> {
  const known = startFaultOf(checkpoint);
  const fault: CheckpointFault = {
    part: 'memory',
    found: 'start',
    code: known?.code ?? 'timeout',
    detail: known === undefined || known.code === 'timeout' ? detail : known.detail,
    foundAt: known?.foundAt ?? ctx.clock.now(),
    times: (known?.times ?? 0) + 1,
  };
  await recordStartFaultOfMemory(ctx, checkpoint, fault);
  return { ...checkpoint, faults: [...checkpoint.faults.filter((one) => one !== known), fault] };
}

/** The memory was restored, so earlier timeouts were the machine's fault. */
export async function recordRestored(ctx: Context, checkpoint: Checkpoint): Promise<void> {
  ctx.restores.succeeded();
  if (startFaultOf(checkpoint) !== undefined) await recordStartFaultOfMemory(ctx, checkpoint, null);
}

function startFaultOf({ faults }: Checkpoint): CheckpointFault | undefined {
  return faults.find(({ found }) => found === 'start');
}

function asError(checkpoint: Checkpoint, { code, detail }: CheckpointFault): TorporError {
  const hint = 'Allow the fallback "files"; the memory is kept with the checkpoint.';
  const error = new TorporError(code, `The memory of ${checkpoint.id} cannot be used: ${detail}.`, { hint });
  return new PartFault(error, checkpoint, 'memory');
}
