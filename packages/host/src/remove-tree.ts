/**
 * Deletes a directory with whatever a sandbox left in it: directories without write permission and paths
 * longer than the kernel takes in one call, which only programs that walk step by step can reach.
 */
import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { errnoOf } from './storage-failure.ts';

const run = promisify(execFile);

const MENDABLE: readonly (string | undefined)[] = ['EACCES', 'EPERM', 'ENAMETOOLONG', 'ENOTEMPTY'];

/** Absent: nothing to do. */
export async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (thrown) {
    if (!MENDABLE.includes(errnoOf(thrown))) throw thrown;
    await run('chmod', ['-R', 'u+rwx', '--', path]).catch(() => {});
    await run('rm', ['-rf', '--', path]);
  }
}
