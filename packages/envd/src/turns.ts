/** A turn of a session on the wire. The call is not part of E2B's protocol, so it is plain JSON. */
import { TorporError } from '@torpor/protocol';

export interface TurnRequest {
  readonly id: string;
  /** The name under which the process is kept between turns; null for a process that serves only this turn. */
  readonly keep: string | null;
  readonly process: {
    readonly cmd: string;
    readonly args: readonly string[];
    readonly envs: Readonly<Record<string, string>>;
    readonly cwd?: string;
  };
  /** Written to the stdin of the process. */
  readonly input: string;
}

export type TurnReceipt =
  | { readonly is: 'written'; readonly tag: string; readonly offset: number }
  | { readonly is: 'unknown'; readonly why: string };

/** Checks the answer: an agent runs beside untrusted code. */
export function turnReceipt(answer: unknown): TurnReceipt {
  const { is, tag, offset, why } = (answer ?? {}) as Record<string, unknown>;
  if (is === 'written' && typeof tag === 'string' && Number.isSafeInteger(offset)) {
    return { is, tag, offset: Number(offset) };
  }
  if (is === 'unknown')
    return { is, why: typeof why === 'string' ? why.slice(0, 1_000) : 'the agent cannot say.' };
  throw new TorporError('internal', 'The agent did not report the outcome of the turn.');
}
