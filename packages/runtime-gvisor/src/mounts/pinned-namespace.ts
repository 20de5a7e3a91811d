/** Makes a mount namespace that a file pins. */
import { cpus } from 'node:os';
import { programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';

const TIMEOUT_MS = 10_000;

/**
 * The file must lie on a private mount.
 *
 * The kernel refuses to mount a namespace in one that was made after it, because that would be a loop, and compares their
 * numbers. Since Linux 6.18 each processor gives out numbers from a block of its own. So a server in a container, whose own
 * namespace is as young as this one, is refused when its own was made on a processor with higher numbers. Of several
 * processors one gives a higher number: that on which the container was started.
 */
export async function makePinnedNamespace(file: string, signal: AbortSignal): Promise<void> {
  const command = ['unshare', `--mount=${file}`, '--propagation', 'slave', 'true'] as const;
  try {
    await run(command, signal);
  } catch (thrown) {
    if (!isRefused(thrown)) throw thrown;
    // All processors of the machine: the server may be bound to others than its namespace was made on.
    for (const processor of cpus().keys()) {
      const made = await run(['taskset', '--cpu-list', String(processor), ...command], signal).then(
        () => true,
        () => false,
      );
      if (made) return;
      signal.throwIfAborted();
    }
    throw thrown;
  }
}

async function run([program, ...args]: readonly [string, ...string[]], signal: AbortSignal): Promise<void> {
  await programOutput(program, args, { signal, timeoutMs: TIMEOUT_MS });
}

function isRefused(thrown: unknown): boolean {
  return thrown instanceof TorporError && thrown.message.includes('Invalid argument');
}
