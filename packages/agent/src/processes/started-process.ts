/** A started process, whether it runs on pipes or in a terminal. */

import type { User } from '../identity/users.ts';
import type { ExitStatus } from './exit-status.ts';
import type { OutputRing } from './output-ring.ts';

export interface LaunchSpec {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Undefined for the agent's own user. */
  readonly user: User | undefined;
  /** Limit for the output that is kept for late readers. */
  readonly keptBytes: number;
}

export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

export interface StartedProcess {
  readonly pid: number;
  readonly output: OutputRing;
  /** Resolves once the process has ended and its output has been read. Never rejects. */
  readonly ended: Promise<ExitStatus>;
  /** Resolves when the bytes are in the pipe or terminal of the process. */
  write(kind: 'stdin' | 'pty', bytes: Uint8Array): Promise<void>;
  closeStdin(): void;
  resize(size: TerminalSize): void;
}
