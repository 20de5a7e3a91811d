/** What turns a goal into files: a program, a model, or applications that come with Torpor. */
import type { JobId } from '@torpor/protocol';
import type { GeneratedFile } from './generated-files.ts';

export interface RunnerOrder {
  readonly org: string;
  readonly jobId: JobId;
  readonly projectId: string;
  readonly goal: string;
  /** What there is already, when it goes on from another build. */
  readonly previous: readonly GeneratedFile[];
  /** For the log of the build. */
  readonly output: (channel: string, text: string) => void;
}

export interface Runner {
  /**
   * All files of the application. They are checked before anything is done with them; a runner need not be
   * trusted. What it began has ended when the promise settles.
   */
  run(order: RunnerOrder, signal: AbortSignal): Promise<readonly GeneratedFile[]>;
}
