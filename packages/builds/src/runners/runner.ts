/** A runner turns a goal into the files of an application: a program, a model, or the built-in starters. */
import type { JobId } from '@torpor/protocol';
import type { GeneratedFile } from './generated-files.ts';

export interface RunnerInput {
  readonly org: string;
  readonly jobId: JobId;
  readonly projectId: string;
  readonly goal: string;
  /** The files of the previous build; empty for a new application. */
  readonly previous: readonly GeneratedFile[];
  /** Writes to the log of the build. */
  readonly output: (channel: string, text: string) => void;
}

export interface Runner {
  /**
   * Returns all files of the application. The caller checks them, so a runner need not be trusted. All processes and
   * sandboxes of the runner have ended when the promise settles.
   */
  run(input: RunnerInput, signal: AbortSignal): Promise<readonly GeneratedFile[]>;
}
