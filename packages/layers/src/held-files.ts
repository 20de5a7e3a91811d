/** What a container holds of deleted files: they have no name any more, and their blocks are still taken. */
import type { Usage } from './layers.ts';
import { run } from './program.ts';

const BLOCK = 512;
/** Device, inode, blocks. */
const FORMAT = '%D %i %b\\n';
/** `find` goes on after descriptors that were closed meanwhile, and says so with this. */
const SOME_UNSEEN = 1;

/** `device` is the file system of the container's root; a file without a name elsewhere is not one of its files. */
export async function heldUsage(
  pids: readonly number[],
  device: number,
  signal?: AbortSignal,
): Promise<Usage> {
  if (pids.length === 0) return { bytes: 0, entries: 0 };
  const descriptors = pids.map((pid) => `/proc/${pid}/fd`);
  const deleted = ['-maxdepth', '1', '-type', 'f', '-links', '0', '-printf', FORMAT];
  const listing = await run('find', ['-L', ...descriptors, ...deleted], { signal, accepted: [SOME_UNSEEN] });
  const blocks = new Map<string, number>();
  for (const line of listing.split('\n')) {
    const [dev, inode = '', taken] = line.split(' ');
    if (Number(dev) === device) blocks.set(inode, Number(taken));
  }
  let bytes = 0;
  for (const taken of blocks.values()) bytes += taken * BLOCK;
  return { bytes, entries: blocks.size };
}
