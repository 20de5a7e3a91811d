/**
 * The processes this agent has started: those that run, and for a while those that ended, so that a
 * client which was away still learns how.
 */
import { TorporError } from '@torpor/protocol';
import type { ExitStatus } from './exit-status.ts';
import type { StartedProcess } from './started-process.ts';

/** What was asked for, as List shows it. */
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
  /** Set once it has ended. */
  exit?: ExitStatus;
}

export type ProcessSelector = { readonly pid: number } | { readonly tag: string };

export interface TableOptions {
  /** Milliseconds on a clock that does not jump. */
  readonly now: () => number;
  readonly kill: (pid: number, signal: NodeJS.Signals) => void;
  /** Ends are kept this long at least, unless there are too many. */
  readonly keptMs?: number;
  readonly keptExits?: number;
  /** Output kept for all ended processes together. */
  readonly keptOutputBytes?: number;
}

interface KeptExit {
  readonly process: TrackedProcess;
  readonly endedAt: number;
}

export class ProcessTable {
  readonly #running = new Map<number, TrackedProcess>();
  /** In the order in which they ended. */
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

  /** Calls back for every process that ends, until the returned function is called. */
  onEnd(listener: (process: TrackedProcess) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  list(): TrackedProcess[] {
    return [...this.#running.values()];
  }

  /** One that runs, or else the one that ended last. A tag may be used again, and means the newest. */
  find(selector: ProcessSelector): TrackedProcess {
    const found = this.search(selector);
    if (found === undefined) throw notFound(selector);
    return found;
  }

  /** The same, or undefined when there is none. */
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

  /** Reaches the whole process group. One that is gone by now needs no signal. */
  signal(process: TrackedProcess, signal: NodeJS.Signals): void {
    this.#options.kill(-process.started.pid, signal);
  }

  #keep(process: TrackedProcess): void {
    const now = this.#options.now();
    this.#running.delete(process.started.pid);
    this.#ended.push({ process, endedAt: now });
    const { keptMs, keptExits } = this.#options;
    this.#ended = this.#ended.filter((kept) => now - kept.endedAt <= keptMs).slice(-keptExits);
    let budget = this.#options.keptOutputBytes;
    for (const kept of this.#ended.toReversed()) {
      const { output } = kept.process.started;
      output.shrink(Math.max(budget, 0));
      budget -= output.keptBytes;
    }
  }
}

function notFound(selector: ProcessSelector): TorporError {
  const name = 'pid' in selector ? `pid ${selector.pid}` : `tag ${selector.tag}`;
  return new TorporError('not_found', `There is no process with ${name}.`);
}

/** Sends a signal as `kill(2)` does, without complaint when nobody is left to take it. */
export function killQuietly(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // ESRCH: it ended in the meantime, which is what the signal was for.
  }
}
