/**
 * What the layer must look like that stands for several: a pure function of their trees.
 *
 * It looks names up as overlayfs does. A directory is made of pieces, one of each layer that has it: the
 * newest gives it its attributes, and each piece says how the search goes on below it, which is not at all
 * (opaque), under another name (a redirect without `/`) or at another path from the top (one with `/`). What
 * the lowest piece says is carried over to the new layer, because other layers may lie below that one.
 */
import type { TreePath } from './tree-listing.ts';

/** An entry of a layer; `from` is whatever finds it again. */
export interface MergeNode<T> {
  readonly from: T;
  readonly kind: 'directory' | 'whiteout' | 'other';
  readonly opaque: boolean;
  readonly redirect: string | null;
  readonly children: ReadonlyMap<string, MergeNode<T>>;
}

/** An entry of the new layer: the node's, with these words to overlayfs when it is a directory. */
export interface PlannedEntry<T> {
  readonly path: TreePath;
  readonly node: MergeNode<T>;
  readonly opaque: boolean;
  readonly redirect: string | null;
}

interface Piece<T> {
  /** Index of the layer, 0 for the newest. */
  readonly layer: number;
  readonly node: MergeNode<T>;
}

interface Directory<T> {
  readonly path: TreePath;
  readonly pieces: readonly Piece<T>[];
  /** Where the search for it goes on below all the layers, from the top; null when it ends within them. */
  readonly below: string | null;
}

/** The tops of the layers, newest first. Directories come before what is in them. */
export function* planMerge<T>(tops: readonly MergeNode<T>[]): Generator<PlannedEntry<T>> {
  const roots = tops.map((node, layer) => ({ layer, node }));
  const [newest] = tops;
  if (newest === undefined) return;
  yield { path: '', node: newest, opaque: false, redirect: null };
  // A list and not a recursion: a sandbox may nest directories deeper than calls can be.
  const directories: Directory<T>[] = [{ path: '', pieces: roots, below: '/' }];
  for (let parent = directories.pop(); parent !== undefined; parent = directories.pop()) {
    for (const name of namesIn(parent)) {
      const found = lookUp(roots, parent, name);
      const path = parent.path === '' ? name : `${parent.path}/${name}`;
      if (found.is === 'directory') {
        const { pieces, below } = found;
        const node = (pieces[0] as Piece<T>).node;
        yield { path, node, ...wordsFor(parent, name, below) };
        directories.push({ path, pieces, below });
        // With nothing below there is nothing to hide.
      } else if (found.is === 'other' || parent.below !== null) {
        yield { path, node: found.node, opaque: false, redirect: null };
      }
    }
  }
}

function namesIn<T>({ pieces }: Directory<T>): Set<string> {
  const names = new Set<string>();
  for (const { node } of pieces) for (const name of node.children.keys()) names.add(name);
  return names;
}

/** How a directory of the new layer tells overlayfs to go on at `below`. */
function wordsFor<T>(
  parent: Directory<T>,
  name: string,
  below: string | null,
): { readonly opaque: boolean; readonly redirect: string | null } {
  if (below === null) return { opaque: parent.below !== null, redirect: null };
  if (parent.below === null) return { opaque: false, redirect: below };
  if (below === join(parent.below, name)) return { opaque: false, redirect: null };
  const slash = below.lastIndexOf('/');
  // The shorter form where it will do: an attribute has room for less than a path can have.
  const isSibling = join(parent.below, below.slice(slash + 1)) === below;
  return { opaque: false, redirect: isSibling ? below.slice(slash + 1) : below };
}

type Found<T> =
  | { readonly is: 'directory'; readonly pieces: readonly Piece<T>[]; readonly below: string | null }
  | { readonly is: 'whiteout' | 'other'; readonly node: MergeNode<T> };

/** Looks up a name that one of the pieces of `parent` has. */
function lookUp<T>(roots: readonly Piece<T>[], parent: Directory<T>, name: string): Found<T> {
  const pieces: Piece<T>[] = [];
  let stack = parent.pieces;
  let sought = name;
  for (let i = 0; i < stack.length; i++) {
    const { layer, node } = stack[i] as Piece<T>;
    const step = sought.startsWith('/') ? walk(node, sought) : single(node, sought, '', '');
    sought = step.sought;
    if (step.node !== null && step.node.kind !== 'directory') {
      if (pieces.length === 0) return { is: step.node.kind, node: step.node };
      // A directory hides whatever else lies under it, and what lies under that.
      return { is: 'directory', pieces, below: null };
    }
    if (step.node !== null) pieces.push({ layer, node: step.node });
    if (step.stop) return { is: 'directory', pieces, below: null };
    if (sought.startsWith('/') && stack !== roots) {
      stack = roots;
      i = layer;
    }
  }
  if (sought.startsWith('/')) return { is: 'directory', pieces, below: sought };
  return { is: 'directory', pieces, below: parent.below === null ? null : join(parent.below, sought) };
}

interface Step<T> {
  readonly node: MergeNode<T> | null;
  /** Whether the search ends with this layer. */
  readonly stop: boolean;
  /** What is sought in the layers below. */
  readonly sought: string;
}

/** One name in one directory. `before` and `after` are the rest of what is sought, when that is a path. */
function single<T>(base: MergeNode<T>, name: string, before: string, after: string): Step<T> {
  const node = base.children.get(name) ?? null;
  const unchanged = before + name + after;
  if (node === null) return { node, stop: false, sought: unchanged };
  if (node.kind !== 'directory' || node.opaque) return { node, stop: true, sought: unchanged };
  if (node.redirect === null) return { node, stop: false, sought: unchanged };
  const start = node.redirect.startsWith('/') ? '' : before;
  return { node, stop: false, sought: start + node.redirect + after };
}

/** A path from the top, in one layer. Each directory on the way may say that the rest goes on elsewhere. */
function walk<T>(top: MergeNode<T>, path: string): Step<T> {
  let base = top;
  let rest = path.slice(1);
  let sought = path;
  let stop = false;
  for (;;) {
    const slash = rest.indexOf('/');
    const name = slash < 0 ? rest : rest.slice(0, slash);
    const after = slash < 0 ? '' : rest.slice(slash);
    const before = sought.slice(0, sought.length - rest.length);
    const step = single(base, name, before, after);
    // Below an opaque directory, a redirect from the top goes on all the same.
    stop = step.stop || (stop && step.node?.redirect?.startsWith('/') !== true);
    sought = step.sought;
    if (step.node === null) return { node: null, stop, sought };
    if (slash < 0) return { node: step.node, stop, sought };
    if (step.node.kind !== 'directory') return { node: null, stop: true, sought };
    base = step.node;
    rest = rest.slice(slash + 1);
  }
}

function join(directory: string, name: string): string {
  return directory === '/' ? `/${name}` : `${directory}/${name}`;
}
