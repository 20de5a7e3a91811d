/** A turn of a session on the wire. It is ours alone, so that it is plain JSON. */
import { TorporError } from '@torpor/protocol';

export interface TurnOrder {
  readonly id: string;
  /** The name under which the process stays between turns; null for one of its own. */
  readonly keep: string | null;
  readonly process: {
    readonly cmd: string;
    readonly args: readonly string[];
    readonly envs: Readonly<Record<string, string>>;
    readonly cwd?: string;
  };
  /** Written to its stdin. */
  readonly input: string;
}

export type TurnReceipt =
  | { readonly is: 'written'; readonly tag: string; readonly offset: number }
  | { readonly is: 'unknown'; readonly why: string };

/** An agent lives beside hostile code: what it says is looked at before it is believed. */
export function turnReceipt(answer: unknown): TurnReceipt {
  const { is, tag, offset, why } = (answer ?? {}) as Record<string, unknown>;
  if (is === 'written' && typeof tag === 'string' && Number.isSafeInteger(offset)) {
    return { is, tag, offset: Number(offset) };
  }
  if (is === 'unknown')
    return { is, why: typeof why === 'string' ? why.slice(0, 1_000) : 'the agent cannot say.' };
  throw new TorporError('internal', 'The agent did not say what became of the turn.');
}
