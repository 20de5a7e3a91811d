/** Runs `work` with something mounted, and unmounts it afterwards, also after a failure. */
import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** `args` are those of `mount`, without the mount point. */
export async function withMount(
  at: string,
  args: readonly string[],
  work: () => Promise<void>,
): Promise<void> {
  await mkdir(at, { recursive: true });
  await run('mount', [...args, at]);
  try {
    await work();
  } finally {
    await run('umount', [at]);
  }
}
