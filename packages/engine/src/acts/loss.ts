/**
 * A sandbox is lost when the files of all its checkpoints are proved unusable. The proof goes into the event, the
 * sandbox's row and every later answer.
 */
import type { CheckpointId, LostCheckpoint, TorporError } from '@torpor/protocol';
import { type Checkpoint, findCheckpoint, listCheckpoints } from '../checkpoints/checkpoint.ts';
import { proofAgainstFiles } from '../checkpoints/checks.ts';
import type { Context } from '../context.ts';
import type { Sandbox } from '../sandbox.ts';
import { nothingToStartFrom } from './sources.ts';

/**
 * The proof that no checkpoint of the sandbox can be started: the fault of the files of its attached or newest checkpoint,
 * when the files of all others are proved unusable too. Memory is not checked: the files are enough to start.
 */
export async function proofOfLoss(ctx: Context, sandbox: Sandbox): Promise<TorporError | undefined> {
  let first: TorporError | undefined;
  for await (const checkpoint of checkpointsOf(ctx, sandbox)) {
    const proof = await proofAgainstFiles(ctx, checkpoint);
    if (proof === undefined) return undefined;
    first ??= proof;
  }
  return first ?? nothingToStartFrom(sandbox);
}

const PAGE = 64;

/** The attached checkpoint, and then all sealed checkpoints of the sandbox, newest first. */
async function* checkpointsOf(ctx: Context, { id, checkpointId }: Sandbox): AsyncGenerator<Checkpoint> {
  const attached = checkpointId === null ? undefined : await findCheckpoint(ctx.db, checkpointId);
  if (attached !== undefined) yield attached;
  let page: Checkpoint[];
  let before: number | null = null;
  do {
    page = await listCheckpoints(ctx.db, id, before, PAGE);
    yield* page.filter((checkpoint) => checkpoint.id !== checkpointId);
    before = page.at(-1)?.seq ?? null;
  } while (page.length === PAGE);
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
