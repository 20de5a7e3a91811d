/**
 * Which node may act on a sandbox: only the node that runs it, or has run it last. A sleeping sandbox changes its
 * owner when another node accepts a request that starts or ends it.
 */
import { type CheckpointId, isTerminal, type OperationKind, TorporError } from '@torpor/protocol';
import { type Checkpoint, findCheckpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Transaction } from '../ports/database.ts';
import type { Sandbox } from '../sandbox.ts';
import { hasFencedRun } from './recovered-runs.ts';

const STARTS: readonly OperationKind[] = ['resume', 'rollback'];

interface OwnedRequest {
  readonly kind: OperationKind;
  /** The checkpoint that the caller names to start from. */
  readonly from?: CheckpointId | undefined;
  /** An operation is open on the sandbox. */
  readonly isBusy: boolean;
}

/**
 * Returns the sandbox as one of this node, or throws `unreachable` with the name of its node. Part of the transaction that
 * accepts an operation; the caller holds the lock of the row.
 */
export async function requireOwner(
  { node }: Pick<Context, 'node'>,
  tx: Transaction,
  sandbox: Sandbox,
  { kind, from, isBusy }: OwnedRequest,
): Promise<Sandbox> {
  if (isTerminal(sandbox.state)) return sandbox;
  if (STARTS.includes(kind) && (await hasFencedRun(tx, node.name, sandbox.id)))
    throw stillKeeping(sandbox, node.name);
  if (sandbox.node === node.name) return sandbox;
  if (sandbox.state !== 'paused' || isBusy) throw livesElsewhere(sandbox);
  switch (kind) {
    case 'resume':
    case 'rollback': {
      const wanted = from ?? sandbox.checkpointId;
      const checkpoint = wanted === null ? undefined : await findCheckpoint(tx, wanted);
      if (checkpoint !== undefined && !isAtHand(node.name, checkpoint)) throw notReplicated(checkpoint);
      return own(tx, sandbox, node.name);
    }
    case 'kill':
      return own(tx, sandbox, node.name);
    default:
      // The other verbs only read the checkpoint of a sleeping sandbox.
      return sandbox;
  }
}

/** Whether this node can start from the checkpoint, from its own disk or from the store. */
export function isAtHand(node: string, checkpoint: Checkpoint): boolean {
  return checkpoint.node === node || checkpoint.external || checkpoint.replicatedAt !== null;
}

/** Refuses to start a new sandbox from a checkpoint that only another node has. */
export function requireAtHand({ node }: Context, checkpoint: Checkpoint | undefined): void {
  if (checkpoint === undefined || isAtHand(node.name, checkpoint)) return;
  throw notReplicated(checkpoint);
}

async function own(tx: Transaction, sandbox: Sandbox, node: string): Promise<Sandbox> {
  await tx.query('UPDATE sandboxes SET node = $2 WHERE id = $1', [sandbox.id, node]);
  return { ...sandbox, node };
}

function livesElsewhere({ id, node, state }: Sandbox): TorporError {
  return new TorporError('unreachable', `The sandbox is ${state} on the node "${node}".`, {
    sandboxId: id,
    details: { node },
    hint: `Ask the node "${node}", or any server of the cluster.`,
  });
}

function stillKeeping({ id }: Sandbox, node: string): TorporError {
  return new TorporError(
    'transitioning',
    `The node "${node}" still keeps what the sandbox had there before the node was given up.`,
    { sandboxId: id, details: { node }, hint: 'Ask again in a moment, or ask another node.' },
  );
}

function notReplicated({ id, node, sandboxId }: Checkpoint): TorporError {
  return new TorporError(
    'unreachable',
    `Only the node "${node}" has checkpoint ${id}: it is not replicated.`,
    {
      checkpointId: id,
      ...(sandboxId === null ? {} : { sandboxId }),
      details: { node },
      hint: `Ask the node "${node}", or wait until the checkpoint is replicated.`,
    },
  );
}
