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
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { writeFileDurably } from '@torpor/host';
import { makeDirectory } from './durable.ts';
import { kindOf, moveDirectory } from './move-directory.ts';
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
    await moveDirectory(join(gvisor, 'layers'), join(store, 'layers'));
    await moveDirectory(join(gvisor, 'owned'), join(store, 'references'));
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
