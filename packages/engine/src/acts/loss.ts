/**
 * A sandbox is lost when the files of all its checkpoints are proved unusable. The proof goes into the event, the
 * sandbox's row and every later answer.
 */
import type { CheckpointId, LostCheckpoint, TorporError } from '@torpor/protocol';
import { findCheckpoint, listCheckpoints } from '../checkpoints/checkpoint.ts';
import { proofAgainstFiles } from '../checkpoints/checks.ts';
import type { Context } from '../context.ts';
import type { Sandbox } from '../sandbox.ts';
import { nothingToStartFrom } from './sources.ts';

/**
 * The proof that no checkpoint of the sandbox can be started: the fault of the files of its newest checkpoint, when
 * the files of all others are proved unusable too. Memory is not checked: the files are enough to start.
 */
export async function proofOfLoss(ctx: Context, sandbox: Sandbox): Promise<TorporError | undefined> {
  const own = await listCheckpoints(ctx.db, sandbox.id, null, 64);
  const attached =
    sandbox.checkpointId === null ? undefined : await findCheckpoint(ctx.db, sandbox.checkpointId);
  let first: TorporError | undefined;
  for (const checkpoint of attached === undefined ? own : [attached, ...own]) {
    const proof = await proofAgainstFiles(ctx, checkpoint);
    if (proof === undefined) return undefined;
    first ??= proof;
  }
  return first ?? nothingToStartFrom(sandbox);
}

/** What is recorded of a proof: a reason for people, and codes for programs. */
export function lossBy(proof: TorporError): {
  readonly reason: string;
  readonly lostCheckpoint: LostCheckpoint | null;
} {
  const { code, message } = proof;
  const { checkpointId, location = null } = checkpointIn(proof);
  if (checkpointId === undefined) {
    return { reason: `no usable checkpoint is left: ${message}`, lostCheckpoint: null };
  }
  const where = location === null ? code : `${code}, ${location}`;
  return {
    reason: `no usable checkpoint is left: ${message} (${where})`,
    lostCheckpoint: { checkpointId, location, code },
  };
}

/** The checkpoint that an error names, and its location. */
export function checkpointIn(error: TorporError): {
  readonly checkpointId?: CheckpointId;
  readonly location?: string | null;
} {
  const { checkpointId, details } = error.toBody();
  if (checkpointId === undefined) return {};
  const location = typeof details?.['location'] === 'string' ? details['location'] : null;
  return { checkpointId: checkpointId as CheckpointId, location };
}
