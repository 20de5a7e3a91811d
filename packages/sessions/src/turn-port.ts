/** The inside of a sandbox as a session needs it: a turn goes in once, and its answer comes out. */
import type { Program, SandboxId, TurnId } from '@torpor/protocol';

/** What was said before, for a program that does not remember. */
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

/** What the agent of the sandbox has written down about a turn. */
export type DeliveryReceipt =
  /** The program has it. `tag` names the process, `offset` where in its output the answer begins. */
  | { readonly is: 'written'; readonly tag: string; readonly offset: number }
  /** It was recorded, and then something broke: whether the program got it cannot be known. */
  | { readonly is: 'unknown'; readonly why: string };

export type ProgramOutput =
  /** `position` is where the bytes begin in everything the process wrote. */
  | {
      readonly is: 'output';
      readonly channel: 'stdout' | 'stderr';
      readonly position: number;
      readonly bytes: Uint8Array;
    }
  | { readonly is: 'end'; readonly exitCode: number; readonly signal: string | null };

/** Every call throws a TorporError; a passing one says nothing about what has happened inside. */
export interface TurnPort {
  /** May be repeated: the agent answers what it recorded the first time. */
  deliver(org: string, id: SandboxId, order: TurnMessage, signal: AbortSignal): Promise<DeliveryReceipt>;
  /** What a process says, from `from` on as far as it is kept. Throws `not_found` when there is no such process. */
  listen(
    org: string,
    id: SandboxId,
    tag: string,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<ProgramOutput>;
}
