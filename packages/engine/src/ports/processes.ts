/**
 * The port to the processes of a running sandbox, as its agent lists them. The engine asks, so that no job stays `running`
 * when its process has ended. The protocol of the agent is not the engine's concern.
 */
import type { AgentAddress } from './runtime.ts';

/** How a process ended, as a shell reports it: the exit code of a signal is 128 plus its number. */
export interface ProcessEnd {
  readonly exitCode: number;
  readonly signal: string | null;
}

export interface TaggedProcess {
  readonly tag: string;
  readonly pid: number;
  readonly command: string;
  readonly cwd: string | null;
}

export interface Processes {
  /** Lists every running process that has a tag. */
  list(agent: AgentAddress, signal: AbortSignal): Promise<readonly TaggedProcess[]>;
  /** How a process that no longer runs ended; null when the agent does not know. */
  endOf(agent: AgentAddress, tag: string, signal: AbortSignal): Promise<ProcessEnd | null>;
  /**
   * Waits until one of these processes has ended, or is unknown to the agent (then `end` is null). Throws
   * `capability_unsupported` for an agent that does not support waiting: the engine then polls `list`.
   */
  nextEnd(
    agent: AgentAddress,
    tags: readonly string[],
    signal: AbortSignal,
  ): Promise<{ readonly tag: string; readonly end: ProcessEnd | null }>;
}
