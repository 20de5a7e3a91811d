/** Measures deleted files that a container holds open: they have no name, but still take up blocks. */
import { programOutput } from '@torpor/host';
import type { Usage } from './layers.ts';

const BLOCK = 512;
/** Device, inode, blocks. */
const FORMAT = '%D %i %b\\n';
/** The exit status of `find` when descriptors were closed while it ran. */
const SOME_DESCRIPTORS_CLOSED = 1;

/** `device` is the file system of the container's root. Deleted files on other file systems do not count. */
export async function deletedFilesUsage(
  pids: readonly number[],
  device: number,
  signal?: AbortSignal,
): Promise<Usage> {
  if (pids.length === 0) return { bytes: 0, entries: 0 };
  const descriptors = pids.map((pid) => `/proc/${pid}/fd`);
  const deleted = ['-maxdepth', '1', '-type', 'f', '-links', '0', '-printf', FORMAT];
  const listing = await programOutput('find', ['-L', ...descriptors, ...deleted], {
    signal,
    acceptedStatuses: [SOME_DESCRIPTORS_CLOSED],
  });
  const blocks = new Map<string, number>();
  for (const line of listing.split('\n')) {
    const [dev, inode = '', taken] = line.split(' ');
    if (Number(dev) === device) blocks.set(inode, Number(taken));
  }
  let bytes = 0;
  for (const taken of blocks.values()) bytes += taken * BLOCK;
  return { bytes, entries: blocks.size };
}
