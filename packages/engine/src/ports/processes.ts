/**
 * What the agent of a running sandbox knows of its processes. The engine asks, so that a job never says `running`
 * when its process has ended; how an agent is spoken to is not the engine's business.
 */
import type { AgentAddress } from './runtime.ts';

/** How a process ended, as a shell tells it: a signal is 128 and its number. */
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
  /** Every process that runs and has a tag. */
  list(agent: AgentAddress, signal: AbortSignal): Promise<readonly TaggedProcess[]>;
  /** How a process that does not run any more ended; null when the agent does not know. */
  endOf(agent: AgentAddress, tag: string, signal: AbortSignal): Promise<ProcessEnd | null>;
  /**
   * Waits until one of these processes has ended, or is not known to the agent (`end` is null then). Throws
   * `capability_unsupported` for an agent that cannot be waited for: it has to be asked from time to time.
   */
  nextEnd(
    agent: AgentAddress,
    tags: readonly string[],
    signal: AbortSignal,
  ): Promise<{ readonly tag: string; readonly end: ProcessEnd | null }>;
}
