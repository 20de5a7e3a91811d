/**
 * Chooses the node for a sandbox: the node that has its checkpoint at hand, otherwise the best of three by free
 * memory. Nothing is reserved here: the chosen node reserves the memory in the transaction that accepts the sandbox.
 */
import { TorporError } from '@torpor/protocol';
import { type Checkpoint, findCheckpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Queryable } from '../ports/database.ts';
import type { Place, Placement } from '../ports/nodes.ts';
import { isLive, type Node } from './node.ts';
import { isAtHand } from './ownership.ts';

const CHOICES = 3;

export async function choosePlace(ctx: Context, nodes: readonly Node[], what: Placement): Promise<Place> {
  const { runtime = ctx.defaultRuntime, memoryMb, checkpointId, except } = what;
  const checkpoint = checkpointId === undefined ? undefined : await findCheckpoint(ctx.db, checkpointId);
  const used = await usedMemory(ctx.db);
  const refused: string[] = [];
  const fitting = nodes.filter((node) => {
    const why = whyNot(node, { runtime, memoryMb, checkpoint, except }, used.get(node.name) ?? 0);
    if (why !== undefined) refused.push(`${node.name} ${why}`);
    return why === undefined;
  });
  const freeOf = (node: Node) => node.memoryMb - (used.get(node.name) ?? 0);
  const best = atHand(fitting, checkpoint) ?? bestOf(someOf(ctx, fitting), freeOf, runtime, checkpoint);
  if (best === undefined) throw noNode(refused);
  if (best.name === ctx.node.name) return { is: 'here' };
  return { is: 'elsewhere', node: best.name, address: best.address };
}

interface Wanted {
  readonly runtime: string;
  readonly memoryMb: number;
  readonly checkpoint: Checkpoint | undefined;
  readonly except: string | undefined;
}

/** The reason why the node cannot take the sandbox; undefined when it can. */
function whyNot(
  node: Node,
  { runtime, memoryMb, checkpoint, except }: Wanted,
  used: number,
): string | undefined {
  if (node.name === except) return 'is to be left';
  if (!isLive(node)) return 'is away';
  if (node.draining) return 'is being drained';
  if (node.cordoned) return 'is cordoned';
  if (node.fingerprint[runtime] === undefined) return `has no runtime "${runtime}"`;
  if (checkpoint !== undefined && !isAtHand(node.name, checkpoint)) {
    return `does not have checkpoint ${checkpoint.id}, which is not replicated`;
  }
  const free = node.memoryMb - used;
  if (memoryMb > free) return `has ${Math.max(0, free)} MB of memory free, and ${memoryMb} MB are needed`;
  return undefined;
}

function atHand(nodes: readonly Node[], checkpoint: Checkpoint | undefined): Node | undefined {
  // A template's checkpoint is soon on every node, so its first node must not get every new sandbox.
  if (checkpoint === undefined || checkpoint.sandboxId === null) return undefined;
  return nodes.find(({ name }) => name === checkpoint.node);
}

/** Shuffles by new ids: servers that choose at the same time must not all choose the same node. */
function someOf(ctx: Context, nodes: readonly Node[]): Node[] {
  const shuffled = nodes
    .map((node) => ({ node, at: ctx.ids.next('evt') }))
    .sort((a, b) => (a.at.slice(-8) < b.at.slice(-8) ? -1 : 1));
  return shuffled.slice(0, CHOICES).map(({ node }) => node);
}

/** A node that can use the memory of the checkpoint is better than one that would start from the files. */
function bestOf(
  nodes: readonly Node[],
  freeOf: (node: Node) => number,
  runtime: string,
  checkpoint: Checkpoint | undefined,
): Node | undefined {
  const wanted = checkpoint?.parts.memory === true ? checkpoint.fingerprint : null;
  const fits = (node: Node) => (wanted === null || node.fingerprint[runtime] === wanted ? 1 : 0);
  return nodes.toSorted((a, b) => fits(b) - fits(a) || freeOf(b) - freeOf(a))[0];
}

/** The memory that sandboxes may use, in MB, by node: of all nodes, or of this one. */
export async function usedMemory(db: Queryable, node?: string): Promise<Map<string, number>> {
  const rows = await db.query<{ node: string; used: number }>(
    `SELECT node, CAST(COALESCE(SUM(memory_mb), 0) AS {integer}) AS used FROM sandboxes
     WHERE state IN ('creating', 'running', 'pausing', 'resuming', 'killing') ${node === undefined ? '' : 'AND node = $1'}
     GROUP BY node`,
    node === undefined ? [] : [node],
  );
  return new Map(rows.map(({ node, used }) => [node, used]));
}

function noNode(refused: readonly string[]): TorporError {
  const why = refused.length === 0 ? 'There are no nodes.' : `${refused.join('; ')}.`;
  return new TorporError('capacity', `No node can take the sandbox: ${why}`, {
    hint: 'Kill or pause sandboxes, uncordon a node, or add one. torpor node ls shows what each has.',
    details: { nodes: refused },
  });
}
