/**
 * What is known about the health of a checkpoint, and how a new look changes it.
 *
 * Faults are kept for each part, and by how they were found: a quick look can clear what a quick look found, but
 * contents that were read and found damaged stay so until they are read again.
 */
import {
  type CheckpointFault,
  type CheckpointHealth,
  type CheckpointPart,
  type ErrorCode,
  type SandboxView,
  TorporError,
} from '@torpor/protocol';
import { type Context, note } from '../context.ts';
import { lockOwner, type Sandbox } from '../sandbox.ts';
import { type Checkpoint, lockSealed } from './checkpoint.ts';

/** What was seen of one part: nothing wrong, a proved fault, or that the part could not be read. */
export interface PartLook {
  readonly part: CheckpointPart;
  readonly found: CheckpointFault['found'];
  readonly error: TorporError | null;
}

/** Codes that say the checkpoint itself is at fault, for good. */
const DAMAGE: ReadonlySet<ErrorCode> = new Set(['checkpoint_missing', 'checkpoint_corrupt']);

export function provesDamage(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && DAMAGE.has(thrown.code);
}

/** What is written in a checkpoint's row about its health. */
type Judgement = Pick<Checkpoint, 'health' | 'healthCode' | 'healthDetail' | 'faults'>;

function judge(before: Judgement, looks: readonly PartLook[], now: number): Judgement {
  let faults = before.faults;
  for (const look of looks) faults = withLook(faults, look, now);
  const unread = looks.find(({ error }) => error !== null && !provesDamage(error))?.error;
  if (unread) {
    return { health: 'unknown', healthCode: unread.code, healthDetail: unread.message, faults };
  }
  const [worst] = faults.filter(isProved).sort((a, b) => severity(b) - severity(a));
  if (worst === undefined) return { health: 'ok', healthCode: null, healthDetail: null, faults };
  return { health: 'damaged', healthCode: worst.code, healthDetail: worst.detail, faults };
}

function withLook(
  faults: readonly CheckpointFault[],
  { part, found, error }: PartLook,
  now: number,
): readonly CheckpointFault[] {
  if (error !== null && !provesDamage(error)) return faults;
  // Whoever has read the contents has looked at presence and sizes before.
  const replaced = (fault: CheckpointFault) =>
    fault.part === part && fault.found !== 'start' && (found === 'contents' || fault.found === 'inspection');
  const rest = faults.filter((fault) => !replaced(fault));
  if (error === null) return rest;
  const { code, message: detail } = error;
  const earlier = faults.find((fault) => replaced(fault) && fault.found === found && fault.code === code);
  return [...rest, { part, found, code, detail, foundAt: earlier?.foundAt ?? now }];
}

/** Memory that did not come back in time is suspected, and damaged only once that is concluded. */
function isProved({ found, code }: CheckpointFault): boolean {
  return found !== 'start' || code !== 'timeout';
}

/** Files matter more than memory, and what is missing more than what differs. */
function severity({ part, code }: CheckpointFault): number {
  return (part === 'files' ? 2 : 0) + (code === 'checkpoint_missing' ? 1 : 0);
}

/** Times of a verification; a look at presence and sizes writes none, so that what is well costs no write. */
export interface ReadTimes {
  readonly scrubbedAt: number;
  /** Null when the contents could not be read: then the verification before still stands. */
  readonly verifiedAt: number | null;
}

/** Writes down what was seen, with an event when it is news. */
export async function recordLooks(
  ctx: Context,
  checkpoint: Checkpoint,
  looks: readonly PartLook[],
  times?: ReadTimes,
): Promise<CheckpointHealth> {
  const now = ctx.clock.now();
  const expected = judge(checkpoint, looks, now);
  if (times === undefined && isSame(checkpoint, expected)) return expected.health;
  return rejudge(ctx, checkpoint, (before) => judge(before, looks, now), times);
}

/** Replaces what is known against the memory by starts from it; null when a start from it succeeded. */
export async function recordStartFaultOfMemory(
  ctx: Context,
  checkpoint: Checkpoint,
  fault: CheckpointFault | null,
): Promise<void> {
  await rejudge(ctx, checkpoint, (before) => {
    const rest = before.faults.filter(({ found }) => found !== 'start');
    return judge({ ...before, faults: fault === null ? rest : [...rest, fault] }, [], ctx.clock.now());
  });
}

async function rejudge(
  ctx: Context,
  checkpoint: Checkpoint,
  judgementOf: (before: Checkpoint) => Judgement,
  times?: ReadTimes,
): Promise<CheckpointHealth> {
  return ctx.db.transaction(async (tx) => {
    const owner = await lockOwner(tx, checkpoint.sandboxId);
    // What was given up meanwhile is neither well nor damaged any more.
    const before = await lockSealed(tx, checkpoint.id);
    if (before === undefined) return checkpoint.health;
    const after = judgementOf(before);
    const { health, healthCode: code, healthDetail: detail } = after;
    await tx.query(
      `UPDATE checkpoints SET health = $2, health_code = $3, health_detail = $4, faults = $5,
         files_missing = $8, scrubbed_at = COALESCE($6, scrubbed_at), verified_at = COALESCE($7, verified_at) WHERE id = $1`,
      [
        checkpoint.id,
        health,
        code,
        detail,
        JSON.stringify(after.faults),
        times?.scrubbedAt ?? null,
        times?.verifiedAt ?? null,
        healthWord(after) === 'missing' ? 1 : 0,
      ],
    );
    if (owner === undefined || isSame(before, after)) return health;
    const parts = partsAtFault(after);
    const about = { checkpointId: checkpoint.id, location: checkpoint.location, parts };
    await note(
      ctx,
      tx,
      owner,
      'checkpoint.health',
      { ...about, health, code, detail },
      { operationId: null },
    );
    return health;
  });
}

function isSame(a: Judgement, b: Judgement): boolean {
  return newsOf(a) === newsOf(b);
}

function newsOf({ health, healthCode, faults }: Judgement): string {
  const proved = faults.filter(isProved);
  return JSON.stringify([health, healthCode, proved.map(({ part, found, code }) => [part, found, code])]);
}

function partsAtFault({ faults }: Pick<Checkpoint, 'faults'>): CheckpointPart[] {
  return [...new Set(faults.filter(isProved).map(({ part }) => part))].sort();
}

type ViewedHealth = NonNullable<SandboxView['checkpointHealth']>;

/** The health of the checkpoint that a sandbox would be resumed from, as the sandbox's view tells it. */
export function viewHealth(sandbox: Sandbox, checkpoint: Checkpoint | undefined): ViewedHealth | null {
  const { lostCheckpoint, reason } = sandbox;
  if (lostCheckpoint !== null) {
    const health = lostCheckpoint.code === 'checkpoint_missing' ? 'missing' : 'damaged';
    return { health, reason, verifiedAt: null, parts: ['files'] };
  }
  if (checkpoint === undefined) return null;
  const { healthDetail, verifiedAt } = checkpoint;
  return {
    health: healthWord(checkpoint),
    reason: healthDetail,
    verifiedAt,
    parts: partsAtFault(checkpoint),
  };
}

/** `missing` when the files are: a checkpoint without its memory is damaged, and can still be started. */
export function healthWord({
  health,
  faults,
}: Pick<Checkpoint, 'health' | 'faults'>): ViewedHealth['health'] {
  const missing = faults.some(({ part, code }) => part === 'files' && code === 'checkpoint_missing');
  return health === 'damaged' && missing ? 'missing' : health;
}
