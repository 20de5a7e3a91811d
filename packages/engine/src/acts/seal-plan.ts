/** What a seal is to do, and the row of its checkpoint. */
import { type CheckpointId, type CheckpointMode, type Reason, TorporError } from '@torpor/protocol';
import { insertWriting } from '../checkpoints/checkpoint.ts';
import { type Context, pauseCapability } from '../context.ts';
import type { Operation } from '../operations/operation.ts';
import type { Transaction } from '../ports/database.ts';
import type { Runtime } from '../ports/runtime.ts';
import type { Sandbox } from '../sandbox.ts';

export interface SealPlan<T = void> {
  readonly checkpointId: CheckpointId;
  /** `memory` means memory and files. */
  readonly mode: CheckpointMode;
  readonly reason: Reason;
  /**
   * What happens to the sandbox after the commit. `runs on`: the same processes are thawed (a seal in place).
   * `restarts`: it is paused, and a start follows within the same operation.
   */
  readonly afterwards: 'stays paused' | 'runs on' | 'restarts';
  /** A caller asked for this checkpoint: it stays until a caller deletes it or it expires. */
  readonly kept: boolean;
  readonly name: string | null;
  readonly expiresAt: number | null;
  readonly filesOnlyFallback: FilesOnlyFallback;
  /** Writes what becomes true together with the checkpoint, in the same transaction, before its event. */
  readonly extraWrites: (tx: Transaction, sandbox: Sandbox, operation: Operation) => Promise<T>;
}

/** A plan of a seal after which the sandbox continues; `finishSeal` follows the seal. */
export interface ContinuingSealPlan<T = void> extends SealPlan<T> {
  readonly afterwards: 'runs on' | 'restarts';
}

/** For plans without other writes. */
export async function noExtraWrites(): Promise<void> {}

/**
 * When to seal files only: never; after a capture error, which is expected to repeat; or also after a timeout, which may
 * be due to load.
 */
export type FilesOnlyFallback = 'never' | 'on failure' | 'on failure or timeout';

/** The parts to seal. Checks the runtime's capability before any write. */
export function sealMode(runtime: Runtime, wanted: CheckpointMode | undefined, what: string): CheckpointMode {
  const best = pauseCapability(runtime, what);
  if (wanted === 'memory' && best === 'files') {
    throw new TorporError('capability_unsupported', `The runtime "${runtime.name}" keeps files, not memory.`);
  }
  return wanted ?? best;
}

/** Inserts the row of a checkpoint before any of its bytes exist. */
export async function insertCheckpointRow(
  ctx: Context,
  tx: Transaction,
  sandbox: Sandbox,
  operation: Operation,
  checkpointId: CheckpointId,
): Promise<void> {
  await insertWriting(
    tx,
    {
      id: checkpointId,
      org: sandbox.org,
      sandboxId: sandbox.id,
      generation: sandbox.generation,
      seq: sandbox.seq,
      parentId: sandbox.baseId,
      runtime: sandbox.runtime,
      operationId: operation.id,
      node: ctx.node.name,
    },
    ctx.clock.now(),
  );
}
