/**
 * Owners of created files. The agent works with its own rights, which are root's in an isolated sandbox, and then gives
 * the files it has created to the user that the call names.
 */
import type { Dirent } from 'node:fs';
import { lchown, lstat, mkdir, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf } from './file-errors.ts';

export interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** The directories that must be created for `directory` to exist, topmost first. */
export async function missingDirectories(directory: string): Promise<string[]> {
  const missing: string[] = [];
  for (let path = directory; ; path = dirname(path)) {
    const failure = await stat(path).then(() => undefined, errnoOf);
    if (failure !== 'ENOENT') return missing.reverse();
    missing.push(path);
  }
}

/** Creates the directories. Without an owner they belong to the agent's own user. */
export async function makeDirectories(missing: readonly string[], owner: Owner | undefined): Promise<void> {
  for (const path of missing) {
    // A program in the sandbox may have created the directory meanwhile. `mkdir` refuses anything else with this name.
    await mkdir(path, { recursive: true });
    // A program may have replaced the name by a link. The target of a link must keep its owner.
    if (owner !== undefined) await lchown(path, owner.uid, owner.gid);
  }
}

/** Copies the owners of a tree to a copy of it. */
export async function copyOwners(from: string, to: string): Promise<void> {
  const { uid, gid } = await lstat(from);
  await lchown(to, uid, gid);
  const entries: Dirent[] = await readdir(from, { withFileTypes: true }).catch(() => []);
  for (const { name } of entries) await copyOwners(join(from, name), join(to, name));
}
