/**
 * What programs of the host do with all files of a layer: measure them (`find`), copy them (`cp`), write them back (`sync`),
 * remove them (`rm`). A program is faster than calls of Node for every file, and does not delay this process.
 */
import { constants } from 'node:fs';
import { copyFile, mkdtemp, rm, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { programOutput } from '@torpor/host';
import type { MeasuredEntry } from './layer-usage.ts';

/** Kind, hard links, inode, blocks. */
const FORMAT = '%y %n %i %b\\n';
/** What `find` prints for the kinds that are told apart. */
const KINDS: Readonly<Record<string, MeasuredEntry['kind']>> = { d: 'directory', s: 'socket' };
/** The exit status of `find` when it could not read some entries. */
const SOME_ENTRIES_UNREADABLE = 1;

/**
 * The entries of a directory, as `find` prints them. It reads no more of each entry than is needed: 10,000 entries take some
 * 30 ms, also while a sandbox is frozen.
 */
export async function findEntries(
  top: string,
  { mayChange, signal }: { readonly mayChange: boolean; readonly signal?: AbortSignal | undefined },
): Promise<MeasuredEntry[]> {
  const listing = await programOutput('find', [top, '-xdev', '-printf', FORMAT], {
    signal,
    acceptedStatuses: mayChange ? [SOME_ENTRIES_UNREADABLE] : [],
  });
  return listing.split('\n').filter(Boolean).map(parseEntry);
}

function parseEntry(line: string): MeasuredEntry {
  const [kind = '', links, inode = '', blocks] = line.split(' ');
  return { kind: KINDS[kind] ?? 'other', links: Number(links), inode, blocks: Number(blocks) };
}

/**
 * Copies a directory as overlayfs wrote it. `to` is an empty directory, and is replaced.
 *
 * The attributes are named one by one, because `cp --archive` does not report an attribute that it could not copy. `cp`
 * fails for paths that are longer than the kernel accepts; the caller then does without the copy.
 */
export async function copyFiles(from: string, to: string, signal?: AbortSignal): Promise<void> {
  await rmdir(to);
  const attributes = '--preserve=mode,ownership,timestamps,links,xattr';
  const how = ['--recursive', '--no-dereference', attributes, '--reflink=auto', '--sparse=auto'];
  await programOutput('cp', [...how, '--no-target-directory', '--', from, to], { signal });
}

/** Tries it with a small file in a directory of its own. */
export async function canReflink(directory: string): Promise<boolean> {
  const trial = await mkdtemp(join(directory, '.reflink-trial-'));
  try {
    await writeFile(join(trial, 'file'), 'trial');
    await copyFile(join(trial, 'file'), join(trial, 'copy'), constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch {
    return false;
  } finally {
    await rm(trial, { recursive: true, force: true });
  }
}

/**
 * Writes back all dirty data of the file system that the path is on. There is no call for a single directory, and syncing
 * its files one by one is far slower than syncing the whole file system.
 */
export async function syncFileSystem(path: string, signal?: AbortSignal): Promise<void> {
  await programOutput('sync', ['-f', path], { signal });
}

/**
 * Removes a tree. Not the `removeTree` of the host package: a layer may have very many files. `rm` does not delay this process; removing
 * 20,000 files with Node's `rm` delayed the event loop by 300 ms. `rm` also accepts paths of any length.
 */
export async function removeByProgram(path: string): Promise<void> {
  await programOutput('rm', ['-rf', '--', path]);
}
