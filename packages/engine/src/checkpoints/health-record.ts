/**
 * The recorded health of a checkpoint, and how the result of a check changes it. `checks.ts` makes the checks.
 *
 * Faults are recorded per part and by how they were found. An inspection clears faults that an inspection found;
 * contents that were read and found damaged stay damaged until they are read again.
 */
import {
  type CheckpointFault,
  type CheckpointHealth,
  type CheckpointPart,
  type ErrorCode,
  type SandboxView,
  TorporError,
} from '@torpor/protocol';
import type { Context } from '../context.ts';
import { recordEvent } from '../ledger/transition.ts';
import { lockSandboxOf, type Sandbox } from '../sandbox.ts';
import { type Checkpoint, lockSealed } from './checkpoint.ts';

/** The result of one check of one part: no fault, a proved fault, or an error that prevented the check. */
export interface PartCheck {
  readonly part: CheckpointPart;
  readonly found: CheckpointFault['found'];
  readonly error: TorporError | null;
}

/** Codes that prove a permanent fault of the checkpoint itself. */
const DAMAGE: ReadonlySet<ErrorCode> = new Set(['checkpoint_missing', 'checkpoint_corrupt']);

export function provesDamage(thrown: unknown): thrown is TorporError {
  return thrown instanceof TorporError && DAMAGE.has(thrown.code);
}

/** The health columns of a checkpoint's row. */
type Assessment = Pick<Checkpoint, 'health' | 'healthCode' | 'healthDetail' | 'faults'>;

function assess(before: Assessment, checks: readonly PartCheck[], now: number): Assessment {
  let faults = before.faults;
  for (const check of checks) faults = withCheck(faults, check, now);
  const unread = checks.find(({ error }) => error !== null && !provesDamage(error))?.error;
  if (unread) {
    return { health: 'unknown', healthCode: unread.code, healthDetail: unread.message, faults };
  }
  const [worst] = faults.filter(isProved).sort((a, b) => severity(b) - severity(a));
  if (worst === undefined) return { health: 'ok', healthCode: null, healthDetail: null, faults };
  return { health: 'damaged', healthCode: worst.code, healthDetail: worst.detail, faults };
}

function withCheck(
  faults: readonly CheckpointFault[],
  { part, found, error }: PartCheck,
  now: number,
): readonly CheckpointFault[] {
  if (error !== null && !provesDamage(error)) return faults;
  // A verification of the contents includes an inspection of presence and sizes.
  const replaced = (fault: CheckpointFault) =>
    fault.part === part && fault.found !== 'start' && (found === 'contents' || fault.found === 'inspection');
  const rest = faults.filter((fault) => !replaced(fault));
  if (error === null) return rest;
  const { code, message: detail } = error;
  const earlier = faults.find((fault) => replaced(fault) && fault.found === found && fault.code === code);
  return [...rest, { part, found, code, detail, foundAt: earlier?.foundAt ?? now }];
}

/** Memory whose restore timed out is only suspected; it is damaged once `concludeFromTimeouts` says so. */
function isProved({ found, code }: CheckpointFault): boolean {
  return found !== 'start' || code !== 'timeout';
}

/** Faults of files outweigh faults of memory, and missing contents outweigh contents that differ. */
function severity({ part, code }: CheckpointFault): number {
  return (part === 'files' ? 2 : 0) + (code === 'checkpoint_missing' ? 1 : 0);
}

/** Times of a verification. An inspection writes no times, so that a healthy checkpoint costs no write. */
export interface ReadTimes {
  readonly scrubbedAt: number;
  /** Null when the contents could not be read: the previous verification stays valid. */
  readonly verifiedAt: number | null;
}

/** Records the results of checks, with an event when the health changes. */
export async function recordChecks(
  ctx: Context,
  checkpoint: Checkpoint,
  checks: readonly PartCheck[],
  times?: ReadTimes,
): Promise<CheckpointHealth> {
  const now = ctx.clock.now();
  const expected = assess(checkpoint, checks, now);
  if (times === undefined && isSame(checkpoint, expected)) return expected.health;
  return writeAssessment(ctx, checkpoint, (before) => assess(before, checks, now), times);
}

/** Replaces the fault that starts found in the memory; null clears it after a successful start. */
export async function recordStartFaultOfMemory(
  ctx: Context,
  checkpoint: Checkpoint,
  fault: CheckpointFault | null,
): Promise<void> {
  await writeAssessment(ctx, checkpoint, (before) => {
    const rest = before.faults.filter(({ found }) => found !== 'start');
    return assess({ ...before, faults: fault === null ? rest : [...rest, fault] }, [], ctx.clock.now());
  });
}

async function writeAssessment(
  ctx: Context,
  checkpoint: Checkpoint,
  assessmentOf: (before: Checkpoint) => Assessment,
  times?: ReadTimes,
): Promise<CheckpointHealth> {
  return ctx.db.transaction(async (tx) => {
    const sandbox = await lockSandboxOf(tx, checkpoint.sandboxId);
    // A checkpoint that was deleted meanwhile has no health any more.
    const before = await lockSealed(tx, checkpoint.id);
    if (before === undefined) return checkpoint.health;
    const after = assessmentOf(before);
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
    if (sandbox === undefined || isSame(before, after)) return health;
    const parts = partsAtFault(after);
    const located = { checkpointId: checkpoint.id, location: checkpoint.location, parts };
    await recordEvent(
      ctx,
      tx,
      sandbox,
      'checkpoint.health',
      { ...located, health, code, detail },
      { operationId: null },
    );
    return health;
  });
}

function isSame(a: Assessment, b: Assessment): boolean {
  return summaryOf(a) === summaryOf(b);
}

function summaryOf({ health, healthCode, faults }: Assessment): string {
  const proved = faults.filter(isProved);
  return JSON.stringify([health, healthCode, proved.map(({ part, found, code }) => [part, found, code])]);
}

function partsAtFault({ faults }: Pick<Checkpoint, 'faults'>): CheckpointPart[] {
  return [...new Set(faults.filter(isProved).map(({ part }) => part))].sort();
}

type ViewedHealth = NonNullable<SandboxView['checkpointHealth']>;

/** The health of the checkpoint that a sandbox would be resumed from, as the sandbox's view shows it. */
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

/** `missing` when the files are missing. A checkpoint that lacks only its memory is damaged and can still start. */
export function healthWord({
  health,
  faults,
}: Pick<Checkpoint, 'health' | 'faults'>): ViewedHealth['health'] {
  const missing = faults.some(({ part, code }) => part === 'files' && code === 'checkpoint_missing');
  return health === 'damaged' && missing ? 'missing' : health;
}
