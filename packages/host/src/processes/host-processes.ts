/** The processes of this machine. One implementation per operating system. */
import { linuxProcesses } from './linux-processes.ts';
import { portableProcesses } from './portable-processes.ts';

export interface ProcessFacts {
  readonly pid: number;
  readonly parent: number;
  /** Children inherit the session, and no process can join the session of another. 0 for threads of the kernel. */
  readonly session: number;
  /** The process group. All its processes are in one session. */
  readonly group: number;
  /** Together with the pid this identifies one process until the machine restarts. */
  readonly startedAt: string;
  readonly state: ProcessState;
}

/** `uninterruptible` waits in the kernel, where signals have no effect yet. `dead` is a zombie. */
export type ProcessState = 'running' | 'uninterruptible' | 'stopped' | 'dead';

export interface Listener {
  readonly address: string;
  readonly port: number;
  /** The name under which a process has the socket open, such as `socket:[123]`. */
  readonly socket: string;
  /** The user that has opened the socket; null when it cannot be read. */
  readonly user: number | null;
}

export interface HostProcesses {
  /** Changes when the machine restarts. All pids change too. */
  bootId(): Promise<string>;
  read(pid: number): Promise<ProcessFacts | undefined>;
  all(): Promise<ProcessFacts[]>;
  /** The `TORPOR_…=…` variables that the process was started with. Empty when they cannot be read. */
  torporVariables(facts: ProcessFacts): Promise<readonly string[]>;
  /** The real, effective, saved and file system user ids. Empty when they cannot be read. */
  userIds(facts: ProcessFacts): Promise<readonly number[]>;
  listeners(port: number): Promise<Listener[]>;
  /** Which of the sockets the process holds open. */
  heldSockets(facts: ProcessFacts, sockets: ReadonlySet<string>): Promise<readonly string[]>;
}

export function hostProcesses(platform: NodeJS.Platform = process.platform): HostProcesses {
  return platform === 'linux' ? linuxProcesses : portableProcesses;
}

export function isSameProcess(
  a: ProcessFacts | undefined,
  b: Pick<ProcessFacts, 'pid' | 'startedAt'>,
): boolean {
  return a !== undefined && a.pid === b.pid && a.startedAt === b.startedAt;
}
