/** File systems in a file, for tests that need one with reflinks or project quotas. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const DISKS = {
  xfs: { type: 'xfs', make: ['mkfs.xfs', '-q', '-m', 'reflink=1'], options: 'loop' },
  ext4: { type: 'ext4', make: ['mkfs.ext4', '-q'], options: 'loop' },
  'xfs with project quotas': {
    type: 'xfs',
    make: ['mkfs.xfs', '-q', '-m', 'reflink=1'],
    options: 'loop,prjquota',
  },
  'ext4 with project quotas': {
    type: 'ext4',
    make: ['mkfs.ext4', '-q', '-O', 'quota,project', '-E', 'quotatype=prjquota'],
    options: 'loop,prjquota',
  },
} as const;

export type LoopDisk = keyof typeof DISKS;

/** 300 MB is the smallest XFS; the file is sparse. */
const MEGABYTES = 320;

/** Why there is no such file system here, or undefined when there is one. */
export function loopDiskRefusal(disk: LoopDisk): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root, to mount file systems';
  const top = mkdtempSync(join(tmpdir(), 'torpor-disk-'));
  try {
    const at = join(top, 'disk');
    mkdirSync(at);
    mountLoopDisk(disk, join(top, 'file'), at);
    execFileSync('umount', [at]);
    return undefined;
  } catch {
    const programs = 'mkfs.xfs and xfs_quota (Debian: xfsprogs)';
    return `needs ${programs} and a kernel that mounts ${disk}`;
  } finally {
    rmSync(top, { recursive: true });
  }
}

/** Both paths are the caller's: `file` does not exist, `at` is an empty directory. `umount` ends the loop device too. */
export function mountLoopDisk(disk: LoopDisk, file: string, at: string, megabytes = MEGABYTES): void {
  const { type, make, options } = DISKS[disk];
  const [program, ...args] = make;
  execFileSync('truncate', [`--size=${megabytes}M`, file]);
  execFileSync(program, [...args, file], { stdio: 'pipe' });
  execFileSync('mount', ['-t', type, '-o', options, file, at], { stdio: 'pipe' });
}
