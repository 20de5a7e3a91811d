/** The port to the program in a sandbox: delivers a turn once, and reads its answer. The server implements it. */
import type { Program, SandboxId, TurnId } from '@torpor/protocol';

/** An earlier turn and its answer, for a program that has lost its own history. */
export interface PastTurn {
  readonly input: string;
  readonly output: string;
}

export interface TurnMessage {
  readonly id: TurnId;
  readonly sessionKey: string;
  readonly program: Program;
  readonly input: string;
  readonly agentThreadId: string | null;
  readonly history: readonly PastTurn[] | null;
}

/** What the agent of the sandbox has recorded about a turn. */
export type DeliveryReceipt =
  /** The program has the turn. `tag` names the process; the answer begins at `offset` of its output. */
  | { readonly is: 'written'; readonly tag: string; readonly offset: number }
  /** The agent recorded the turn and then failed: whether the program got the turn cannot be known. */
  | { readonly is: 'unknown'; readonly why: string };

export type ProgramOutput =
  /** `position` is the offset of the bytes in the whole output of the process. */
  | {
      readonly is: 'output';
      readonly channel: 'stdout' | 'stderr';
      readonly position: number;
      readonly bytes: Uint8Array;
    }
  | { readonly is: 'end'; readonly exitCode: number; readonly signal: string | null };

/** Every call throws a TorporError. A transient error says nothing about what happened in the sandbox. */
export interface TurnPort {
  /** May be repeated: the agent answers with what it recorded the first time. */
  deliver(org: string, id: SandboxId, message: TurnMessage, signal: AbortSignal): Promise<DeliveryReceipt>;
  /** Reads the output of a process from offset `from`, as far as it is kept. Throws `not_found` when there is no such process. */
  listen(
    org: string,
    id: SandboxId,
    tag: string,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<ProgramOutput>;
}
