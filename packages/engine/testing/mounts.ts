/** Disks that are full or read-only. Root ignores file modes, so only a mount can deny it a write. */
import { execFileSync } from 'node:child_process';
import { mkdir } from 'node:fs/promises';

/** Whether this process may mount. Tested in a mount namespace that ends with the test program. */
export function canMount(): boolean {
  if (process.getuid?.() !== 0) return false;
  try {
    execFileSync('unshare', ['-m', 'mount', '-t', 'tmpfs', 'none', '/mnt'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Mounts `directory` read-only at `at` while `work` runs. */
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

/** Mounts a disk of `kibibytes` at `at` while `work` runs. */
export async function withSmallDisk(at: string, kibibytes: number, work: () => Promise<void>): Promise<void> {
  await mkdir(at, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${kibibytes}k`, 'none', at]);
  try {
    await work();
  } finally {
    execFileSync('umount', [at]);
  }
}
