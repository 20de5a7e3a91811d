/** Disks that are full or cannot be written. Root ignores modes, so only a mount can show it a closed door. */
import { execFileSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';

/** Whether this process may mount at all; asked in a mount namespace that goes away with the question. */
export function canMount(): boolean {
  if (process.getuid?.() !== 0) return false;
  try {
    execFileSync('unshare', ['-m', 'mount', '-t', 'tmpfs', 'none', '/mnt'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Shows `directory` at `at`, where nothing can be written, while `work` runs. */
export async function withReadonlyView(
  directory: string,
  at: string,
  work: () => Promise<void>,
): Promise<void> {
  await mkdir(at);
  execFileSync('mount', ['--bind', directory, at]);
  try {
    execFileSync('mount', ['-o', 'remount,ro,bind', at]);
    await work();
  } finally {
    execFileSync('umount', [at]);
  }
}

/** Puts a disk of a few kibibytes at `at` while `work` runs. */
export async function withSmallDisk(at: string, kibibytes: number, work: () => Promise<void>): Promise<void> {
  await mkdir(at, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${kibibytes}k`, 'none', at]);
  try {
    await work();
  } finally {
    execFileSync('umount', [at]);
  }
}
