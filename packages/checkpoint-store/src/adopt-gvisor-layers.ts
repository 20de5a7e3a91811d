/**
 * Migrates a data directory of version 1 when a server of a later version starts on it for the first time.
 *
 * In version 1 the gVisor runtime kept layers at `<data>/gvisor/layers` and the claims of checkpoints at
 * `<data>/gvisor/owned`. Both directories are renamed into the checkpoint store. Nothing is copied or deleted, so a crash
 * loses nothing and the next start continues the migration. Running sandboxes keep their files: the kernel holds the layers
 * of a mounted overlay by their directories, not by their paths.
 *
 * A plain file stays at `<data>/gvisor/layers`. A server of version 1 cannot create its directory there and refuses to start.
 * Without the file that server would treat every layer as lost.
 */
import { lstat, readdir, rename, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { errnoOf, isMissing, syncDirectory, writeFileDurably } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { makeDirectory } from './durable.ts';
import { mapWriteErrors } from './storage-error.ts';
import { realFs } from './store-fs.ts';

const MOVED = `The layers of this data directory are in checkpoints/layers. Earlier versions of Torpor cannot use them there:
this file keeps such a server from starting.
`;

/** Called before the store is opened. Does nothing when the data directory has no layers of version 1. */
export async function adoptGvisorLayers(dataDir: string): Promise<void> {
  const gvisor = join(dataDir, 'gvisor');
  const store = join(dataDir, 'checkpoints');
  if ((await kindOf(gvisor)) === undefined) return;
  await mapWriteErrors({ location: pathToFileURL(store).href }, store, async () => {
    await makeDirectory(realFs, store);
    await move(join(gvisor, 'layers'), join(store, 'layers'));
    await move(join(gvisor, 'owned'), join(store, 'references'));
    if ((await kindOf(join(gvisor, 'layers'))) === undefined)
      await writeFileDurably(join(gvisor, 'layers'), MOVED);
  });
}

/** Whether the data directory still has the layout of version 1. */
export async function isOfVersion1(dataDir: string): Promise<boolean> {
  const gvisor = join(dataDir, 'gvisor');
  const kinds = [await kindOf(join(gvisor, 'layers')), await kindOf(join(gvisor, 'owned'))];
  return kinds.includes('directory');
}

/** Moves a directory by one rename. When the target is not empty, moves each name by one rename. */
async function move(from: string, to: string): Promise<void> {
  if ((await kindOf(from)) !== 'directory') return;
  try {
    await rename(from, to);
    await syncDirectory(dirname(to));
    await syncDirectory(dirname(from));
  } catch (thrown) {
    const errno = errnoOf(thrown);
    if (errno === 'EXDEV') throw otherFileSystem(from, to, thrown);
    if (errno !== 'ENOTEMPTY' && errno !== 'EEXIST') throw thrown;
    await moveEach(from, to);
  }
}

async function moveEach(from: string, to: string): Promise<void> {
  for (const name of await readdir(from)) {
    // A name that exists in both places is not moved, so that nothing is overwritten. The error below reports it.
    if ((await kindOf(join(to, name))) === undefined) await rename(join(from, name), join(to, name));
  }
  await syncDirectory(to);
  await syncDirectory(from);
  const left = await readdir(from);
  if (left.length === 0) return rmdir(from);
  throw new TorporError('conflict', `${from} and ${to} both have ${left.slice(0, 3).join(', ')}.`, {
    hint: `Compare them, and keep one of each under ${to}.`,
    details: { from, to, names: left.slice(0, 10) },
  });
}

async function kindOf(path: string): Promise<'directory' | 'other' | undefined> {
  try {
    return (await lstat(path)).isDirectory() ? 'directory' : 'other';
  } catch (thrown) {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  }
}

function otherFileSystem(from: string, to: string, cause: unknown): TorporError {
  return new TorporError('conflict', `${from} and ${to} are on different file systems.`, {
    hint: `Files of sandboxes are kept in the checkpoint store now. Stop the server and every sandbox, then move ${from} to ${to}.`,
    details: { from, to },
    cause,
  });
}
