/**
 * How many processes and threads each user of the sandbox may have.
 *
 * It is a limit of the agent itself, which everything that it starts has from it; the kernel holds users to it,
 * and a program hears of it where it would on any machine: its fork fails. Root is not held to it, nor is what
 * the agent starts, so that a sandbox which is full can still be looked into and cleaned up. What runs already
 * keeps the limit that it was started with.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

export class ProcessLimit {
  #most: number | undefined;

  /** Whether it is kept: it is not where there is no program to set it with. */
  async set(most: number): Promise<boolean> {
    // A sandbox that wakes as it slept has it.
    if (most === this.#most) return true;
    // Only the limit that counts: the one above it could not be raised again.
    const args = ['--pid', String(process.pid), `--nproc=${most}:`];
    const isSet = await promisify(execFile)('prlimit', args).then(
      () => true,
      () => false,
    );
    if (isSet) this.#most = most;
    return isSet;
  }
}
