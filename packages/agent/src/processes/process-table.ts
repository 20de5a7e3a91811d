/**
 * The processes that this agent has started. An ended process stays in the table for a while, so that a client that
 * reconnects still learns how it ended. The last end of a service stays for good: when the sandbox is started again from
 * its memory, the server must know whether the service has done its work.
 */
import { isServiceTag, MAX_SERVICES, TorporError } from '@torpor/protocol';
import type { ExitStatus } from './exit-status.ts';
import type { StartedProcess } from './started-process.ts';

/** The request that started the process, as List shows it. */
export interface ProcessConfig {
  readonly cmd: string;
  readonly args: readonly string[];
  readonly envs: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

export interface TrackedProcess {
  readonly config: ProcessConfig;
  readonly tag: string | undefined;
  readonly started: StartedProcess;
  /** Set once the process has ended. */
  exit?: ExitStatus;
  /** Set when the agent has sent it a signal: then its end may be what the sender wanted. */
  wasSignalled?: true;
}

export type ProcessSelector = { readonly pid: number } | { readonly tag: string };

export interface TableOptions {
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  readonly kill: (pid: number, signal: NodeJS.Signals) => void;
  /** Ended processes are kept this long, unless there are too many. */
  readonly keptMs?: number;
  readonly keptExits?: number;
  /** Limit for the output of all ended processes together. */
  readonly keptOutputBytes?: number;
}

interface KeptExit {
  readonly process: TrackedProcess;
  readonly endedAt: number;
}

export class ProcessTable {
  readonly #running = new Map<number, TrackedProcess>();
  /** Ordered by end. */
  #ended: KeptExit[] = [];
  readonly #listeners = new Set<(process: TrackedProcess) => void>();
  readonly #options: Required<TableOptions>;

  constructor(options: TableOptions) {
    this.#options = {
      keptMs: 3_600_000,
      keptExits: 1024,
      keptOutputBytes: 16 * 1024 * 1024,
      ...options,
    };
  }

  add(
    started: StartedProcess,
    config: ProcessConfig,
    { tag, timeoutMs }: { tag?: string | undefined; timeoutMs?: number | undefined } = {},
  ): TrackedProcess {
    const process: TrackedProcess = { config, tag, started };
    this.#running.set(started.pid, process);
    const deadline =
      timeoutMs === undefined ? undefined : setTimeout(() => this.signal(process, 'SIGKILL'), timeoutMs);
    void started.ended.then((exit) => {
      clearTimeout(deadline);
      process.exit = exit;
      this.#keep(process);
      for (const listener of [...this.#listeners]) listener(process);
    });
    return process;
  }

  /** Calls the listener for every process that ends, until the returned function is called. */
  onEnd(listener: (process: TrackedProcess) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  list(): TrackedProcess[] {
    return [...this.#running.values()];
  }

  /** Prefers a running process to an ended process. A tag may be reused; it means the newest process. */
  find(selector: ProcessSelector): TrackedProcess {
    const found = this.search(selector);
    if (found === undefined) throw notFound(selector);
    return found;
  }

  /** Like `find`, but returns undefined when there is none. */
  search(selector: ProcessSelector): TrackedProcess | undefined {
    const matches = (process: TrackedProcess) =>
      'pid' in selector ? process.started.pid === selector.pid : process.tag === selector.tag;
    return this.list().findLast(matches) ?? this.#ended.findLast((kept) => matches(kept.process))?.process;
  }

  findRunning(selector: ProcessSelector): TrackedProcess {
    const found = this.find(selector);
    if (found.exit !== undefined) throw notFound(selector);
    return found;
  }

  /** The last processes of services that have ended by themselves with exit code 0. */
  succeededServices(): TrackedProcess[] {
    return this.#endedServices()
      .map(({ process }) => process)
      .filter(({ exit, wasSignalled }) => exit?.shellCode === 0 && wasSignalled === undefined);
  }

  /** Signals the whole process group. */
  signal(process: TrackedProcess, signal: NodeJS.Signals): void {
    process.wasSignalled = true;
    this.#options.kill(-process.started.pid, signal);
  }

  #keep(process: TrackedProcess): void {
    const now = this.#options.now();
    this.#running.delete(process.started.pid);
    this.#ended.push({ process, endedAt: now });
    const { keptMs, keptExits } = this.#options;
    const recent = this.#ended.filter(({ endedAt }) => now - endedAt <= keptMs).slice(-keptExits);
    const kept = new Set([...recent, ...this.#endedServices()]);
    this.#ended = this.#ended.filter((one) => kept.has(one));
    let budget = this.#options.keptOutputBytes;
    for (const kept of this.#ended.toReversed()) {
      const { output } = kept.process.started;
      output.shrink(Math.max(budget, 0));
      budget -= output.keptBytes;
    }
  }

  /** The last process of each service that does not run. Clients choose tags freely, so their number is limited. */
  #endedServices(): KeptExit[] {
    const isLast = ({ process }: KeptExit) =>
      process.tag !== undefined && isServiceTag(process.tag) && this.search({ tag: process.tag }) === process;
    return this.#ended.filter(isLast).slice(-MAX_SERVICES);
  }
}

function notFound(selector: ProcessSelector): TorporError {
  const name = 'pid' in selector ? `pid ${selector.pid}` : `tag ${selector.tag}`;
  return new TorporError('not_found', `There is no process with ${name}.`);
}

/** Sends a signal as `kill(2)` does, and ignores that the process is gone. */
export function killQuietly(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // ESRCH: the process has ended meanwhile.
  }
}
