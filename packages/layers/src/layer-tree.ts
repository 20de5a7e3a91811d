/** Reads a sealed layer as a tree, with the marks that overlayfs wrote on its directories. */
import type { TarHeader } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { DeepPaths } from './deep-paths.ts';
import { xattrOf } from './directory-archive.ts';
import { hasHeader, readHeaders } from './entry-headers.ts';
import type { MergeNode } from './merge-plan.ts';
import { listTree, shownPath, type TreeEntry, type TreePath } from './tree-listing.ts';

export const OPAQUE = 'trusted.overlay.opaque';
export const REDIRECT = 'trusted.overlay.redirect';

/** Where a node of a merge comes from. */
export interface Origin {
  /** Index of the layer, 0 for the newest. */
  readonly layer: number;
  readonly entry: TreeEntry;
  /** Of directories and devices. */
  readonly header: TarHeader | undefined;
}

interface GrowingNode extends MergeNode<Origin> {
  readonly children: Map<string, GrowingNode>;
}

export async function readTree(
  files: string,
  layer: number,
  signal?: AbortSignal,
): Promise<MergeNode<Origin>> {
  const entries: TreeEntry[] = [];
  for await (const entry of listTree(files, signal)) entries.push(entry);
  const deepPaths = new DeepPaths(files);
  try {
    const asked = entries.filter(hasHeader).map(({ path }) => path);
    const headers = await readHeaders(asked, deepPaths, signal);
    return grow(entries.map((entry) => ({ layer, entry, header: headers.get(entry.path) })));
  } finally {
    await deepPaths.close();
  }
}

function grow(origins: readonly Origin[]): MergeNode<Origin> {
  const nodes = new Map<TreePath, GrowingNode>();
  for (const origin of origins) {
    const { path } = origin.entry;
    const node = nodeOf(origin);
    nodes.set(path, node);
    const slash = path.lastIndexOf('/');
    if (path !== '') nodes.get(path.slice(0, Math.max(slash, 0)))?.children.set(path.slice(slash + 1), node);
  }
  const top = nodes.get('');
  if (top === undefined) throw new Error('find did not list the directory it was asked for.');
  return top;
}

function nodeOf(from: Origin): GrowingNode {
  const { entry, header } = from;
  const opaque = header === undefined ? undefined : xattrOf(header, OPAQUE);
  // The value `x` announces whiteouts in the form of attributes, which overlayfs reads but does not write.
  if (opaque !== undefined && opaque !== 'y') {
    throw new TorporError(
      'conflict',
      `${JSON.stringify(shownPath(entry.path))} has marks that cannot be merged.`,
    );
  }
  return {
    from,
    kind: entry.type === 'directory' ? 'directory' : isWhiteout(from) ? 'whiteout' : 'other',
    opaque: opaque === 'y',
    redirect: header === undefined ? null : (xattrOf(header, REDIRECT) ?? null),
    children: new Map(),
  };
}

function isWhiteout({ entry, header }: Origin): boolean {
  return entry.type === 'character' && header?.device.major === 0 && header.device.minor === 0;
}
