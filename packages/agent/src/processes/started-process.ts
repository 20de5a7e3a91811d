/** What a process is to the rest of the agent, whether it runs on pipes or in a terminal. */

import type { User } from '../identity/users.ts';
import type { ExitStatus } from './exit-status.ts';
import type { OutputRing } from './output-ring.ts';

export interface LaunchOrder {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Absent when it is the agent's own user. */
  readonly user: User | undefined;
  /** The most output kept for late readers. */
  readonly keptBytes: number;
}

export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

export interface StartedProcess {
  readonly pid: number;
  readonly output: OutputRing;
  /** Settles once the process is gone and its output has been read. Never rejects. */
  readonly ended: Promise<ExitStatus>;
  /** Resolves when the process, or the pipe to it, has taken the bytes. */
  write(kind: 'stdin' | 'pty', bytes: Uint8Array): Promise<void>;
  closeStdin(): void;
  resize(size: TerminalSize): void;
}
