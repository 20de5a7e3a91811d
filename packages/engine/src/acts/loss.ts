/**
 * When a sandbox is lost: the files of every checkpoint of its own are proved unusable. What the proof says goes into
 * the event, the sandbox's row and every later answer.
 */
import type { CheckpointId, LostCheckpoint, TorporError } from '@torpor/protocol';
import { findCheckpoint, listCheckpoints } from '../checkpoints/checkpoint.ts';
import { proofAgainstFiles } from '../checkpoints/soundness.ts';
import type { Context } from '../context.ts';
import type { Sandbox } from '../sandbox.ts';
import { nothingToStartFrom } from './sources.ts';

/** Whether anything of the sandbox's own could still be started, by whatever policy. Doubt counts as yes. */
export async function hasUsableCheckpoint(ctx: Context, sandbox: Sandbox): Promise<boolean> {
  return (await proofOfLoss(ctx, sandbox)) === undefined;
}

/**
 * Why nothing of the sandbox's own can be started: what is wrong with the files of its newest checkpoint, once the
 * files of all others are proved unusable too. Memory is never looked at: without it there are still the files.
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

/** What is kept of a proof: for people, and for programs. */
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

/** The checkpoint that an error is about, and where it is. */
export function checkpointIn(error: TorporError): {
  readonly checkpointId?: CheckpointId;
  readonly location?: string | null;
} {
  const { checkpointId, details } = error.toBody();
  if (checkpointId === undefined) return {};
  const location = typeof details?.['location'] === 'string' ? details['location'] : null;
  return { checkpointId: checkpointId as CheckpointId, location };
}
