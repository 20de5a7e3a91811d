/**
 * Decides whether files still include what a turn wrote, from the ledger of the sandbox that the turn was sent to. The
 * order of events decides, never a clock: a checkpoint that was sealed before the turn ended does not hold what the turn
 * wrote, unless the sandbox never ran after the seal.
 */
import type { CheckpointId, EventView, SandboxId, SandboxView } from '@torpor/protocol';
import type { Context } from './context.ts';
import type { Session } from './session.ts';
import { lastClaimedTurn, type Turn } from './turn.ts';

const PAGE = 1_000;

export type LedgerEvent = Pick<EventView, 'type' | 'seq' | 'checkpointId' | 'data'>;

/** The part of a sandbox's ledger in which a turn ran: from its claim to its end. */
interface Span {
  readonly sandboxId: SandboxId;
  readonly from: number;
  /** Null while the turn runs, or when its end is not known. */
  readonly to: number | null;
}

export class Lineage {
  readonly #endedSeq: number | null;
  #intact = true;
  /** The checkpoint that the sandbox is paused at; null while it runs. */
  #stoppedAt: string | null = null;
  readonly #sealed = new Map<string, { readonly seq: number; readonly intact: boolean }>();

  constructor(endedSeq: number | null) {
    this.#endedSeq = endedSeq;
  }

  /** Takes the events after the turn's claim, in order. A checkpoint that is not among them is older. */
  take({ type, seq, checkpointId, data }: LedgerEvent): void {
    const lost = (data['lost'] ?? []) as readonly string[];
    switch (type) {
      case 'checkpoint.sealed':
      case 'sandbox.paused':
      case 'sandbox.recovered':
        // A sandbox that was recovered without its files is set back to an earlier checkpoint.
        if (checkpointId === null || lost.includes('files')) return;
        this.#sealed.set(checkpointId, { seq, intact: this.#intact });
        this.#stoppedAt = type === 'checkpoint.sealed' ? null : checkpointId;
        return;
      case 'sandbox.resumed': {
        const { checkpointId: source } = data['source'] as { readonly checkpointId: string | null };
        this.#intact = !lost.includes('files') && source !== null && this.holds(source);
        this.#stoppedAt = null;
        return;
      }
    }
  }

  /** Whether this checkpoint of the sandbox holds everything that the turn wrote. */
  holds(checkpointId: string): boolean {
    const seal = this.#sealed.get(checkpointId);
    if (seal === undefined || !seal.intact) return false;
    return this.#stoppedAt === checkpointId || (this.#endedSeq !== null && this.#endedSeq < seal.seq);
  }

  /** Whether the current files of the sandbox hold everything that the turn wrote. */
  get isIntact(): boolean {
    return this.#intact;
  }
}

async function lineageOf({ engine }: Pick<Context, 'engine'>, span: Span): Promise<Lineage> {
  const lineage = new Lineage(span.to);
  for (let afterSeq = span.from; ; ) {
    const events = await engine.events({ sandboxId: span.sandboxId, afterSeq }, PAGE);
    for (const event of events) lineage.take(event);
    const last = events.at(-1);
    if (last === undefined || events.length < PAGE) return lineage;
    afterSeq = last.seq;
  }
}

/** Whether the sandbox still has the files it had when the turn was claimed, including what its agent recorded. */
export async function hasFilesOfClaim(ctx: Context, turn: Turn, sandbox: SandboxView): Promise<boolean> {
  if (turn.sandboxId !== sandbox.id) return false;
  if (turn.generation === sandbox.generation) return true;
  return (await lineageOf(ctx, { sandboxId: sandbox.id, from: turn.claimedSeq ?? 0, to: null })).isIntact;
}

/** Whether a checkpoint of a sandbox of the session holds the files of the last delivered turn (R73). */
export async function checkpointHoldsLastTurn(
  ctx: Context,
  session: Session,
  sandboxId: SandboxId,
  checkpointId: CheckpointId,
): Promise<boolean> {
  const turn = await lastClaimedTurn(ctx.db, session.id);
  if (turn === undefined) return true;
  const lineage = await lineageFor(ctx, session, turn, sandboxId);
  return lineage?.holds(checkpointId) ?? false;
}

/** The same for the files that a sandbox has now. */
export async function sandboxHoldsLastTurn(
  ctx: Context,
  session: Session,
  { id, generation }: Pick<SandboxView, 'id' | 'generation'>,
): Promise<boolean> {
  const turn = await lastClaimedTurn(ctx.db, session.id);
  if (turn === undefined || (turn.sandboxId === id && turn.generation === generation)) return true;
  const lineage = await lineageFor(ctx, session, turn, id);
  return lineage?.isIntact ?? false;
}

/**
 * A sandbox that the last turn was not sent to has the turn's files only when it was bound with them. Then the turn had
 * ended before the first event of the sandbox.
 */
async function lineageFor(
  ctx: Context,
  { sandboxId: boundId, formerId, historyDue }: Session,
  turn: Turn,
  sandboxId: SandboxId,
): Promise<Lineage | undefined> {
  if (turn.sandboxId === sandboxId)
    return lineageOf(ctx, { sandboxId, from: turn.claimedSeq ?? 0, to: turn.endedSeq });
  const wasBoundWithThem = !historyDue && (boundId ?? formerId) === sandboxId;
  return wasBoundWithThem ? lineageOf(ctx, { sandboxId, from: 0, to: 0 }) : undefined;
}
