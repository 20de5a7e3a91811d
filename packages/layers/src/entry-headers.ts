/**
 * Reads and sets the extended attributes of directories, and reads device numbers. Neither Node nor `find` can do that, so
 * `tar` makes an archive of just these entries. None of them has content.
 */
import { ByteReader, nextTarHeader, streamProgram, type TarHeader } from '@torpor/host';
import type { DeepPaths } from './deep-paths.ts';
import { ARCHIVE_END, directoryEntry } from './directory-archive.ts';
import type { TreeEntry, TreePath } from './tree-listing.ts';

/** The options of tar that keep every property of an entry. Archives of layers are made with them too. */
export const KEEP_ALL = ['--xattrs', '--xattrs-include=*', '--acls', '--numeric-owner'];

export function hasHeader({ type }: TreeEntry): boolean {
  return type === 'directory' || type === 'character' || type === 'block';
}

/** The headers of these entries, by path. */
export async function readHeaders(
  paths: readonly TreePath[],
  deepPaths: DeepPaths,
  signal?: AbortSignal,
): Promise<Map<TreePath, TarHeader>> {
  const headers = new Map<TreePath, TarHeader>();
  for (const [from, group] of await grouped(paths, (path) => path, deepPaths)) {
    const names = group.map(({ rest }) => Buffer.from(`./${rest}\0`, 'latin1'));
    const args = ['-c', ...KEEP_ALL, '--format=pax', '--pax-option=delete=atime,delete=ctime', '-C', from];
    // Without this option the second name of a device would be a link to the first, without a device number.
    const list = ['--hard-dereference', '--no-recursion', '--null', '--verbatim-files-from', '-T', '-'];
    const archive = new ByteReader(streamProgram('tar', [...args, ...list], { signal, input: names }));
    for (const { item } of group) {
      const header = await nextTarHeader(archive);
      if (header === undefined) break;
      headers.set(item, header);
    }
    await archive.finish();
  }
  return headers;
}

/** Sets owner, mode, attributes and time of existing directories as their headers say. */
export async function applyHeaders(
  headers: readonly TarHeader[],
  deepPaths: DeepPaths,
  signal?: AbortSignal,
): Promise<void> {
  for (const [from, group] of await grouped(headers, ({ path }) => path, deepPaths)) {
    const entries = group.map(({ item, rest }) => directoryEntry({ ...item, path: `./${rest}` }));
    const args = ['-x', ...KEEP_ALL, '-p', '--same-owner', '-C', from];
    for await (const _ of streamProgram('tar', args, { signal, input: [...entries, ARCHIVE_END] })) {
      // tar prints nothing here.
    }
  }
}

/** Groups paths by the directory they start from: one `tar` for each group. There is one group unless paths are very long. */
async function grouped<T>(
  items: readonly T[],
  pathOf: (item: T) => TreePath,
  deepPaths: DeepPaths,
): Promise<Map<string, { readonly item: T; readonly rest: TreePath }[]>> {
  const groups = new Map<string, { readonly item: T; readonly rest: TreePath }[]>();
  for (const item of items) {
    const { from, rest } = await deepPaths.shorten(pathOf(item));
    const group = groups.get(from) ?? [];
    group.push({ item, rest });
    groups.set(from, group);
  }
  return groups;
}
