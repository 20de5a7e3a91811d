/**
 * Limits the number of processes and threads of each user of the sandbox.
 *
 * It is a resource limit of the agent (RLIMIT_NPROC), which every process that the agent starts inherits. The kernel
 * enforces it per user: in a program that reaches it, fork fails. It does not apply to root, nor to the agent when it
 * starts processes, so that a full sandbox can still be inspected and cleaned up. Running processes keep the limit
 * that they were started with.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export class ProcessLimit {
  #most: number | undefined;

  /** Returns whether the limit is in force. It is not where there is no `prlimit` program. */
  async set(most: number): Promise<boolean> {
    // A sandbox that was resumed with its memory has the limit already.
    if (most === this.#most) return true;
    // Sets only the soft limit: a lowered hard limit could not be raised again.
    const args = ['--pid', String(process.pid), `--nproc=${most}:`];
    const isSet = await promisify(execFile)('prlimit', args).then(
      () => true,
      () => false,
    );
    if (isSet) this.#most = most;
    return isSet;
  }
}
