/** The processes of this machine, as far as the runtime needs to know them. One implementation per system. */
import { linuxProcesses } from './linux-processes.ts';
import { portableProcesses } from './portable-processes.ts';

export interface ProcessFacts {
  readonly pid: number;
  readonly parent: number;
  /** Children inherit it, and nobody can join another's; 0 for what is the kernel's own. */
  readonly session: number;
  /** Together with the pid it names one process until the machine restarts. */
  readonly startedAt: string;
  readonly state: ProcessState;
}

/** `busy` is in the kernel, where signals do not reach it yet; `dead` waits for its parent to notice. */
export type ProcessState = 'moving' | 'busy' | 'stopped' | 'dead';

export interface Listener {
  readonly address: string;
  readonly port: number;
  /** What a process holds when the socket is its own. */
  readonly socket: string;
}

export interface HostProcesses {
  /** Changes when the machine restarts, and all pids with it. */
  bootId(): Promise<string>;
  read(pid: number): Promise<ProcessFacts | undefined>;
  all(): Promise<ProcessFacts[]>;
  /** The `TORPOR_…=…` lines of the environment it was started with; empty when it cannot be seen. */
  torporVariables(facts: ProcessFacts): Promise<readonly string[]>;
  /** Every user id it has or could go back to; empty when they cannot be seen. */
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
