/**
 * Plans the one layer that replaces several: a pure function of their trees.
 *
 * The plan looks names up as overlayfs does. A directory is made of pieces, one from each layer that has it. The newest piece
 * gives the attributes. Each piece determines how the lookup continues in the layers below: not at all (opaque), under
 * another name (a redirect without `/`), or at another path from the top (a redirect with `/`). The marks of the lowest piece
 * are copied to the new layer, because other layers may lie below it.
 */
import type { TreePath } from './tree-listing.ts';

/** An entry of a layer; `from` is the caller's reference to it. */
export interface MergeNode<T> {
  readonly from: T;
  readonly kind: 'directory' | 'whiteout' | 'other';
  readonly opaque: boolean;
  readonly redirect: string | null;
  readonly children: ReadonlyMap<string, MergeNode<T>>;
}

/** An entry of the new layer: a copy of `node`, with these marks for overlayfs when it is a directory. */
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
  /** The path at which the lookup continues below all these layers. Null when the lookup ends within them. */
  readonly below: string | null;
}

/** The tops of the layers, newest first. A directory comes before its entries. */
export function* planMerge<T>(tops: readonly MergeNode<T>[]): Generator<PlannedEntry<T>> {
  const roots = tops.map((node, layer) => ({ layer, node }));
  const [newest] = tops;
  if (newest === undefined) return;
  yield { path: '', node: newest, opaque: false, redirect: null };
  // A list instead of recursion: a sandbox may nest directories deeper than the call stack allows.
  const directories: Directory<T>[] = [{ path: '', pieces: roots, below: '/' }];
  for (let parent = directories.pop(); parent !== undefined; parent = directories.pop()) {
    for (const name of namesIn(parent)) {
      const found = lookUp(roots, parent, name);
      const path = parent.path === '' ? name : `${parent.path}/${name}`;
      if (found.is === 'directory') {
        const { pieces, below } = found;
        const node = (pieces[0] as Piece<T>).node;
        yield { path, node, ...marksFor(parent, name, below) };
        directories.push({ path, pieces, below });
        // A whiteout is left out when nothing lies below: it would hide nothing.
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

/** The marks by which a directory of the new layer sends overlayfs to `below`. */
function marksFor<T>(
  parent: Directory<T>,
  name: string,
  below: string | null,
): { readonly opaque: boolean; readonly redirect: string | null } {
  if (below === null) return { opaque: parent.below !== null, redirect: null };
  if (parent.below === null) return { opaque: false, redirect: below };
  if (below === join(parent.below, name)) return { opaque: false, redirect: null };
  const slash = below.lastIndexOf('/');
  // The short form where it suffices: an attribute can hold less than the longest path.
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
      // A directory hides an entry of another type below it, and everything below that.
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
  /** Whether the lookup ends with this layer. */
  readonly stop: boolean;
  /** The path to look up in the layers below. */
  readonly sought: string;
}

/** Looks up one name in one directory. `before` and `after` are the rest of the path, when the lookup is for a path. */
function single<T>(base: MergeNode<T>, name: string, before: string, after: string): Step<T> {
  const node = base.children.get(name) ?? null;
  const unchanged = before + name + after;
  if (node === null) return { node, stop: false, sought: unchanged };
  if (node.kind !== 'directory' || node.opaque) return { node, stop: true, sought: unchanged };
  if (node.redirect === null) return { node, stop: false, sought: unchanged };
  const start = node.redirect.startsWith('/') ? '' : before;
  return { node, stop: false, sought: start + node.redirect + after };
}

/** Looks up a path from the top in one layer. Each directory on the way may redirect the rest of the lookup. */
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
    // A redirect from the top continues even below an opaque directory.
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
