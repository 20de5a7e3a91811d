/**
 * Lays out the checkpoints of a sandbox and everything that was started from them as a tree: rows from the oldest to the
 * newest, each in a lane. The way to the sandbox itself is the first lane; forks and what a rollback left behind branch
 * off into lanes of their own.
 */
import type { CheckpointView, SandboxView } from '@torpor/sdk';

type TreeNode =
  /** A checkpoint that belongs to a template or to another sandbox. */
  | { readonly kind: 'origin'; readonly id: string; readonly title: string }
  | { readonly kind: 'checkpoint'; readonly id: string; readonly checkpoint: CheckpointView }
  /** A sandbox as it is now: this one, or a fork of it. */
  | { readonly kind: 'sandbox'; readonly id: string; readonly sandbox: SandboxView; readonly isOwn: boolean };

export interface TreeRow {
  readonly node: TreeNode;
  readonly lane: number;
  /** The row of the parent, or null for the first row. */
  readonly parentRow: number | null;
}

interface Linked {
  readonly node: TreeNode;
  readonly parentId: string | null;
  readonly at: number;
}

export function treeOf(
  own: SandboxView,
  checkpoints: readonly CheckpointView[],
  others: Iterable<SandboxView>,
  /** The checkpoint that a sandbox was first started from, where the ledger tells. A fork that has slept has another base. */
  origins: ReadonlyMap<string, string> = new Map(),
): TreeRow[] {
  const known = new Set<string>(checkpoints.map(({ id }) => id));
  const originOf = ({ id, baseId }: SandboxView) =>
    [baseId, origins.get(id) ?? null].find((origin) => origin !== null && known.has(origin)) ?? null;
  const forks = [...others].filter((sandbox) => sandbox.id !== own.id && originOf(sandbox) !== null);
  const all: Linked[] = [
    ...checkpoints.map((checkpoint) => ({
      node: { kind: 'checkpoint' as const, id: checkpoint.id, checkpoint },
      parentId: checkpoint.parentId,
      at: checkpoint.createdAt,
    })),
    ...[own, ...forks].map((sandbox) => ({
      node: { kind: 'sandbox' as const, id: sandbox.id, sandbox, isOwn: sandbox.id === own.id },
      parentId: sandbox.id === own.id ? sandbox.baseId : originOf(sandbox),
      // What a sandbox is now comes after every checkpoint of its own.
      at: sandbox.id === own.id ? Number.POSITIVE_INFINITY : sandbox.createdAt,
    })),
  ];
  const missing = new Set(all.map(({ parentId }) => parentId).filter((id) => id !== null && !known.has(id)));
  for (const id of missing) {
    if (id === null) continue;
    const title = own.template === null ? 'a checkpoint of another sandbox' : `started from ${own.template}`;
    all.push({ node: { kind: 'origin', id, title }, parentId: null, at: Number.NEGATIVE_INFINITY });
  }
  all.sort((a, b) => a.at - b.at || (a.node.id < b.node.id ? -1 : 1));
  return inLanes(all, wayTo(own.id, all));
}

/** The node itself and everything above it. */
function wayTo(id: string, all: readonly Linked[]): ReadonlySet<string> {
  const parents = new Map(all.map(({ node, parentId }) => [node.id, parentId]));
  const way = new Set<string>();
  for (let at: string | null = id; at !== null && !way.has(at); at = parents.get(at) ?? null) way.add(at);
  return way;
}

function inLanes(all: readonly Linked[], way: ReadonlySet<string>): TreeRow[] {
  const rowOf = new Map(all.map(({ node }, row) => [node.id, row]));
  const rows: TreeRow[] = [];
  const continued = new Set<number>();
  let lanes = 1;
  for (const { node, parentId } of all) {
    const found = parentId === null ? undefined : rowOf.get(parentId);
    // A parent that is newer than its child is wrong; the child is then drawn as a root.
    const parentRow = found !== undefined && found < rows.length ? found : null;
    const parent = parentRow === null ? undefined : rows[parentRow];
    const isFirst = parentRow !== null && !continued.has(parentRow);
    const goesOn = isFirst && parent !== undefined && !way.has(parent.node.id);
    if (parentRow !== null) continued.add(parentRow);
    rows.push({ node, parentRow, lane: way.has(node.id) ? 0 : goesOn ? parent.lane : lanes++ });
  }
  return rows;
}
