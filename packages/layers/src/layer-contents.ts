/** Reads a sealed layer completely: every entry, with a digest of every file. */
import { forEachBounded, type GiveWay, type TarHeader } from '@torpor/host';
import { DeepPaths } from './deep-paths.ts';
import { xattrOf } from './directory-archive.ts';
import { hasHeader, readHeaders } from './entry-headers.ts';
import { type DigestKind, digestFile, digestKindOf } from './file-digest.ts';
import { mapReadErrors, type Place } from './layer-failure.ts';
import { OPAQUE, REDIRECT } from './layer-tree.ts';
import { listTree, shownPath, type TreeEntry, type TreePath } from './tree-listing.ts';

const FILES_AT_ONCE = 4;

/** One entry. A field without a meaning for this type of entry is left out. */
export interface ContentLine {
  readonly path: TreePath;
  readonly type: TreeEntry['type'];
  readonly mode: string;
  readonly uid: number;
  readonly gid: number;
  readonly mtime: string;
  readonly size?: string;
  readonly digest?: readonly [DigestKind, hex: string];
  readonly target?: string;
  readonly device?: readonly [major: number, minor: number];
  readonly opaque?: string;
  readonly redirect?: string;
  /** Of a file with several hard links in this layer: the first of their paths. */
  readonly linkedTo?: TreePath;
}

export interface Contents {
  readonly lines: readonly ContentLine[];
  readonly digested: number;
}

/** Computes each digest in the same kind as `recorded`, so that the two can be compared. */
export async function readContents(
  files: string,
  recorded: readonly ContentLine[] | undefined,
  place: Place,
  signal?: AbortSignal,
  giveWay?: GiveWay,
): Promise<Contents> {
  const entries = await mapReadErrors(place, () => entriesOf(files, signal));
  const deepPaths = new DeepPaths(files);
  try {
    const asked = entries.filter(hasHeader).map(({ path }) => path);
    const headers = await mapReadErrors(place, () => readHeaders(asked, deepPaths, signal));
    const firsts = firstNames(entries);
    const kinds = new Map(recorded?.map(({ path, digest }) => [path, digest?.[0]]));
    const lines: ContentLine[] = [];
    let digested = 0;
    await forEachBounded(
      [...entries.entries()],
      FILES_AT_ONCE,
      async ([index, entry]) => {
        const line = lineOf(entry, headers.get(entry.path), firsts.get(entry.inode));
        lines[index] = line;
        if (entry.type !== 'file' || line.linkedTo !== undefined) return;
        const kind = kinds.get(entry.path) ?? digestKindOf(entry);
        const at = { ...place, entry: shownPath(entry.path) };
        const digest = () => digestFile(entry, kind, deepPaths, signal, giveWay);
        const { hex, read } = await mapReadErrors(at, digest);
        digested += read;
        lines[index] = { ...line, digest: [kind, hex] };
      },
      signal,
    );
    return { lines, digested };
  } finally {
    await deepPaths.close();
  }
}

async function entriesOf(files: string, signal?: AbortSignal): Promise<TreeEntry[]> {
  const entries: TreeEntry[] = [];
  for await (const entry of listTree(files, signal)) if (entry.type !== 'socket') entries.push(entry);
  return entries.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function firstNames(entries: readonly TreeEntry[]): Map<string, TreePath> {
  const firsts = new Map<string, TreePath>();
  for (const { type, inode, path } of entries) {
    if (type !== 'directory' && !firsts.has(inode)) firsts.set(inode, path);
  }
  return firsts;
}

function lineOf(entry: TreeEntry, header: TarHeader | undefined, first: TreePath | undefined): ContentLine {
  const { path, type, mode, uid, gid, mtime, size, target } = entry;
  const [opaque, redirect] = [OPAQUE, REDIRECT].map((name) => header && xattrOf(header, name));
  const isDevice = type === 'character' || type === 'block';
  return {
    path,
    type,
    mode,
    uid,
    gid,
    mtime,
    ...(type === 'file' ? { size: `${size}` } : {}),
    ...(type === 'symlink' ? { target } : {}),
    ...(isDevice && header !== undefined ? { device: [header.device.major, header.device.minor] } : {}),
    ...(opaque === undefined ? {} : { opaque }),
    ...(redirect === undefined ? {} : { redirect }),
    ...(first === undefined || first === path ? {} : { linkedTo: first }),
  };
}
