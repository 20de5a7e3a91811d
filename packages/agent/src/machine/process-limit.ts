/**
 * Limits the number of processes and threads of each user of the sandbox.
 *
 * It is a resource limit of the agent (RLIMIT_NPROC), which every process that the agent starts inherits. The kernel
 * enforces it per user: in a program that reaches it, fork fails. It does not apply to root, nor to the agent when it
 * starts processes, so that a full sandbox can still be inspected and cleaned up. Running processes keep the limit
 * that they were started with.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';

/** The program `prlimit` of the sandbox. */
export interface Prlimit {
  exists(): boolean;
  /** Returns whether it succeeded. */
  run(args: readonly string[]): Promise<boolean>;
}

const systemPrlimit: Prlimit = {
  exists: () =>
    (process.env['PATH'] ?? '')
      .split(delimiter)
      .some((directory) => directory !== '' && existsSync(join(directory, 'prlimit'))),
  run: (args) =>
    promisify(execFile)('prlimit', args).then(
      () => true,
      () => false,
    ),
};

export class ProcessLimit {
  readonly #prlimit: Prlimit;
  #most: number | undefined;

  constructor(prlimit: Prlimit = systemPrlimit) {
    this.#prlimit = prlimit;
  }

  /** Returns whether the limit is in force. It is not where there is no `prlimit` program. */
  async set(most: number): Promise<boolean> {
    // A sandbox that was resumed with its memory has the limit already.
    if (most === this.#most) return true;
    // Many images have no prlimit, and trying to start a program takes longer than all the rest of a start.
    if (!this.#prlimit.exists()) return false;
    // Sets only the soft limit: a lowered hard limit could not be raised again.
    const isSet = await this.#prlimit.run(['--pid', String(process.pid), `--nproc=${most}:`]);
    if (isSet) this.#most = most;
    return isSet;
  }
}
