/**
 * The extended attributes of directories and the numbers of devices, which neither Node nor `find` tells:
 * `tar` is asked for an archive of just these entries, none of which has any content.
 */
import { ByteReader } from './byte-reader.ts';
import type { DeepPaths } from './deep-paths.ts';
import { output } from './program.ts';
import { ARCHIVE_END, directoryEntry, nextHeader, type TarHeader } from './tar-header.ts';
import type { TreeEntry, TreePath } from './tree-listing.ts';

/** Everything that is kept of an entry. Archives of layers are made with it too. */
export const KEEP_ALL = ['--xattrs', '--xattrs-include=*', '--acls', '--numeric-owner'];

export function hasHeader({ type }: TreeEntry): boolean {
  return type === 'directory' || type === 'character' || type === 'block';
}

/** The headers of these entries, by path. */
export async function readHeaders(
  paths: readonly TreePath[],
  ways: DeepPaths,
  signal?: AbortSignal,
): Promise<Map<TreePath, TarHeader>> {
  const headers = new Map<TreePath, TarHeader>();
  for (const [from, group] of await grouped(paths, (path) => path, ways)) {
    const names = group.map(({ rest }) => Buffer.from(`./${rest}\0`, 'latin1'));
    const args = ['-c', ...KEEP_ALL, '--format=pax', '--pax-option=delete=atime,delete=ctime', '-C', from];
    // Two names of one device would be a header and a link to it.
    const list = ['--hard-dereference', '--no-recursion', '--null', '--verbatim-files-from', '-T', '-'];
    const archive = new ByteReader(output('tar', [...args, ...list], { signal }, names));
    for (const { item } of group) {
      const header = await nextHeader(archive);
      if (header === undefined) break;
      headers.set(item, header);
    }
    await archive.finish();
  }
  return headers;
}

/** Gives directories that are there everything their headers say, times included. */
export async function applyHeaders(
  headers: readonly TarHeader[],
  ways: DeepPaths,
  signal?: AbortSignal,
): Promise<void> {
  for (const [from, group] of await grouped(headers, ({ path }) => path, ways)) {
    const entries = group.map(({ item, rest }) => directoryEntry({ ...item, path: `./${rest}` }));
    const args = ['-x', ...KEEP_ALL, '-p', '--same-owner', '-C', from];
    for await (const _ of output('tar', args, { signal }, [...entries, ARCHIVE_END])) {
      // It prints nothing.
    }
  }
}

/** One `tar` for each directory that ways start from, which is one alone unless paths are very long. */
async function grouped<T>(
  items: readonly T[],
  pathOf: (item: T) => TreePath,
  ways: DeepPaths,
): Promise<Map<string, { readonly item: T; readonly rest: TreePath }[]>> {
  const groups = new Map<string, { readonly item: T; readonly rest: TreePath }[]>();
  for (const item of items) {
    const { from, rest } = await ways.way(pathOf(item));
    const group = groups.get(from) ?? [];
    group.push({ item, rest });
    groups.set(from, group);
  }
  return groups;
}
