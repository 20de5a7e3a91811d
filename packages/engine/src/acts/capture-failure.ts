/**
 * Tells a sandbox whose memory cannot be captured from a temporary failure of captures on this machine, and begins the
 * checkpoint of files alone that takes the place of one with memory.
 */
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { findWriting, markDeleted } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import { type Operation, setPhase } from '../operations/operation.ts';
import { fencedTransaction } from '../operations/operation-handle.ts';
import { type FilesOnlyFallback, insertCheckpointRow } from './seal-plan.ts';

const HINT = 'The sandbox runs on. Pause it with mode "files" to keep its files without its processes.';

/** The memory of the sandbox cannot be captured; its files can. */
export class CaptureFailure extends TorporError {
  /** Has the code and message of `error`. */
  constructor(error: TorporError) {
    const { code, message, ...fields } = error.with({ hint: HINT, details: { part: 'memory' } }).toBody();
    super(code, message, { ...fields, cause: error.cause });
  }
}

/**
 * The failure of a memory capture. A retryable failure stays as it is: another try may succeed. A timeout is a capture
 * failure although it is retryable, because a capture that is too slow is usually too slow again.
 */
export function asCaptureFailure(error: TorporError): TorporError {
  if (error.code !== 'timeout' && (error.retryable || error.code === 'storage_readonly')) return error;
  return new CaptureFailure(error);
}

/** Whether an operation ended with a capture failure. Its error comes from the database, which keeps the details only. */
export function endedByCaptureFailure(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && thrown.toBody().details?.['part'] === 'memory';
}

/** Whether a plan with this fallback seals the files alone after this failure. */
export function allowsFilesOnly(fallback: FilesOnlyFallback, { code }: TorporError): boolean {
  return fallback === 'on failure or timeout' || (fallback === 'on failure' && code !== 'timeout');
}

/** The files-only checkpoint gets a new id; the collector deletes what was staged under the old id. */
export async function insertFilesOnlyRow(
  ctx: Context,
  operation: Operation,
  why: string,
): Promise<CheckpointId> {
  const checkpointId = ctx.ids.next('ckpt');
  await fencedTransaction(ctx, operation, async (tx, sandbox) => {
    for (const unfinished of await findWriting(tx, operation.id)) {
      await markDeleted(tx, unfinished.id, ctx.clock.now());
    }
    await insertCheckpointRow(ctx, tx, sandbox, operation, checkpointId);
    await setPhase(tx, operation, 'keeping files only');
    const data = { kind: operation.kind, phase: 'keeping files only', detail: why };
    await recordEvent(ctx, tx, sandbox, 'operation.phase', data, { operationId: operation.id });
  });
  return checkpointId;
}
