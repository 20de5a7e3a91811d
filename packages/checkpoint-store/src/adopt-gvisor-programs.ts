/**
 * Moves the programs of the gVisor runtime into the checkpoint store, when a server starts for the first time on a data
 * directory of an earlier version. Earlier versions kept each runsc at `<data>/gvisor/runsc/<digest>` and the guest tools at
 * `<data>/gvisor/guest/<digest>`.
 *
 * A symbolic link stays at each old place: the records of running sandboxes have the absolute path of their runsc, and a
 * server of the earlier version finds everything through the link. The link is made beside the old place first, then the
 * directory is moved, then the link is renamed. After a crash between two steps the next start continues. Running sandboxes
 * keep their guest tools: the kernel holds the source of a bind mount by its directory, not by its path.
 */
import { rename, symlink } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { syncDirectory } from '@torpor/host';
import type { ProgramKind } from '@torpor/layers';
import { makeDirectory } from './durable.ts';
import { kindOf, moveDirectory } from './move-directory.ts';
import { mapWriteErrors } from './storage-error.ts';
import { realFs } from './store-fs.ts';

const OLD_NAMES: Readonly<Record<ProgramKind, string>> = { runsc: 'runsc', tools: 'guest' };

/** Called before the store is opened. Does nothing when the data directory has no programs at the old places. */
export async function adoptGvisorPrograms(dataDir: string): Promise<void> {
  const programs = join(dataDir, 'checkpoints', 'programs');
  if ((await kindOf(join(dataDir, 'gvisor'))) === undefined) return;
  await mapWriteErrors({ location: pathToFileURL(programs).href }, programs, async () => {
    await makeDirectory(realFs, programs);
    for (const [kind, oldPath] of oldPlaces(dataDir)) await moveAndLink(oldPath, join(programs, kind));
  });
}

/** Whether programs are still at an old place. */
export async function hasGvisorPrograms(dataDir: string): Promise<boolean> {
  const kinds = await Promise.all(oldPlaces(dataDir).map(([, path]) => kindOf(path)));
  return kinds.includes('directory');
}

function oldPlaces(dataDir: string): [ProgramKind, string][] {
  const kinds = Object.entries(OLD_NAMES) as [ProgramKind, string][];
  return kinds.map(([kind, name]) => [kind, join(dataDir, 'gvisor', name)]);
}

async function moveAndLink(from: string, to: string): Promise<void> {
  const link = `${from}.moved`;
  if ((await kindOf(from)) === 'directory') {
    if ((await kindOf(link)) === undefined) await symlink(relative(dirname(from), to), link);
    await syncDirectory(dirname(from));
    await moveDirectory(from, to);
  }
  if ((await kindOf(link)) === undefined || (await kindOf(from)) !== undefined) return;
  await rename(link, from);
  await syncDirectory(dirname(from));
}
