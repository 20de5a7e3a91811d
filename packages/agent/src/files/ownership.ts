/**
 * Who owns what a call on files makes. The agent acts with its own rights, which in an isolated sandbox are root's,
 * and gives what it has made to the user that the call names.
 */
import type { Dirent } from 'node:fs';
import { lchown, lstat, mkdir, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf } from '../agent-failures.ts';

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** The directories that have to be made so that `directory` exists, topmost first. */
export async function missingDirectories(directory: string): Promise<string[]> {
  const missing: string[] = [];
  for (let path = directory; ; path = dirname(path)) {
    const failure = await stat(path).then(() => undefined, errnoOf);
    if (failure !== 'ENOENT') return missing.reverse();
    missing.push(path);
  }
}

/** Undefined leaves them to the agent's own user. */
export async function makeDirectories(missing: readonly string[], owner: Owner | undefined): Promise<void> {
  for (const path of missing) {
    // A program in the sandbox may have made it meanwhile; `mkdir` refuses what is not a directory.
    await mkdir(path, { recursive: true });
    // The name may be a link by now, and what a link leads to was not made here.
    if (owner !== undefined) await lchown(path, owner.uid, owner.gid);
  }
}

/** Gives a copy of a tree the owners of the original. */
export async function copyOwners(from: string, to: string): Promise<void> {
  const { uid, gid } = await lstat(from);
  await lchown(to, uid, gid);
  const entries: Dirent[] = await readdir(from, { withFileTypes: true }).catch(() => []);
  for (const { name } of entries) await copyOwners(join(from, name), join(to, name));
}
