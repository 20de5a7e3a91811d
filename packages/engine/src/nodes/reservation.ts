/** Reserves memory of this node for a sandbox, in the transaction that accepts its start. */
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { findCheckpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';
import { lockRoom } from './node.ts';
import { usedMemory } from './placement.ts';

/** How long a request waits for the replication of what was just sealed. A larger checkpoint wakes on its own node. */
const REPLICATION_MS = 30_000;

interface Room {
  /** The memory that the sandboxes to be started may use together; null where the runtime sets no limit. */
  readonly memoryMb: number | null;
  /** `new`: the sandbox is new to this node. `wake`: it slept here. */
  readonly what: 'new' | 'wake';
  /** The checkpoint of a sandbox that wakes. */
  readonly checkpointId?: CheckpointId | null;
}

/**
 * Throws `capacity` when the node has no room, or takes no new sandboxes. The lock makes two starts wait for each other, so that
 * together they cannot take more than there is.
 */
export async function reserve(
  { node, clock }: Context,
  tx: Transaction,
  { memoryMb, what, checkpointId = null }: Room,
): Promise<void> {
  if (!node.isClustered) return;
  await lockRoom(tx, node.name);
  const [row] = await tx.query<{ memory_mb: number; cordoned: number; draining: number }>(
    'SELECT memory_mb, cordoned, draining FROM nodes WHERE name = $1',
    [node.name],
  );
  if (row === undefined) throw new Error(`The node "${node.name}" has no row.`);
  if (row.draining === 1 && (what === 'new' || (await isLeaving(tx, checkpointId, clock.now())))) {
    throw draining(node.name);
  }
  if (row.cordoned === 1 && what === 'new') throw cordoned(node.name);
  if (memoryMb === null) return;
  const free = row.memory_mb - ((await usedMemory(tx, node.name)).get(node.name) ?? 0);
  if (memoryMb <= free) return;
  throw new TorporError(
    'capacity',
    `The node "${node.name}" has ${Math.max(0, free)} MB of memory free, and ${memoryMb} MB are needed.`,
    {
      details: { node: node.name, freeMb: free, neededMb: memoryMb },
      hint: 'Kill or pause sandboxes, add a node, or raise --node-memory-mb.',
    },
  );
}

/**
 * Whether the sandbox wakes on another node, now or in a moment. A sandbox that wakes here between its seal and the end of
 * the replication is sealed again by the next round: with steady requests it would never leave.
 */
async function isLeaving(tx: Transaction, id: CheckpointId | null, now: number): Promise<boolean> {
  const checkpoint = id === null ? undefined : await findCheckpoint(tx, id);
  if (checkpoint === undefined) return false;
  if (checkpoint.external || checkpoint.replicatedAt !== null) return true;
  const { sealedAt, replicaFailures } = checkpoint;
  return replicaFailures === 0 && sealedAt !== null && now - sealedAt < REPLICATION_MS;
}

function cordoned(name: string): TorporError {
  return new TorporError('capacity', `The node "${name}" is cordoned: it takes no new sandboxes.`, {
    details: { node: name },
    hint: `torpor node uncordon ${name}, or ask another node.`,
  });
}

function draining(name: string): TorporError {
  return new TorporError(
    'transitioning',
    `The node "${name}" is being drained: its sandboxes go to other nodes.`,
    {
      details: { node: name },
      retryAfterMs: 500,
      hint: 'Ask again in a moment; another node takes the sandbox over.',
    },
  );
}
