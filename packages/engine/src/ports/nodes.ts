/**
 * The ports of a server that is one of several nodes: where a sandbox lives, what ends its instances when the lease of the node
 * ends, and how another node is asked to go on with a sandbox.
 */
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import type { Database } from './database.ts';

/** The name of the node of a server that is alone. */
export const LOCAL_NODE = 'local';

/** The name of all connections of a node to the database. The node that fences it ends connections with this name. */
export function connectionNameOf(node: string): string {
  return `torpor node ${node}`;
}

export interface NodeAddress {
  readonly node: string;
  /** The origin of its server, as the other nodes reach it. */
  readonly address: string;
}

export type Location =
  /** Also for a sandbox that does not exist. */
  | { readonly is: 'here' }
  /**
   * `isPlaced`: the sandbox sleeps, any node may wake it, and this node was chosen. Another call may choose another
   * node.
   */
  | ({ readonly is: 'elsewhere'; readonly isPlaced?: boolean | undefined } & NodeAddress)
  /** The node has no live lease, and no other node can start the sandbox. `since`: when the lease ended. */
  | { readonly is: 'unreachable'; readonly node: string; readonly since: number };

/** What a node is chosen for. */
export interface Placement {
  /** Absent: the runtime of the server that is asked. */
  readonly runtime?: string | undefined;
  readonly memoryMb: number;
  /** The checkpoint that the sandbox starts from. */
  readonly checkpointId?: CheckpointId | undefined;
  /** Never this node. */
  readonly except?: string | undefined;
}

export type Place = { readonly is: 'here' } | ({ readonly is: 'elsewhere' } & NodeAddress);

export interface NodeDirectory {
  /** The name of this node. */
  readonly self: string;
  /** False on a server that is alone: then everything is here, and nothing below asks the database. */
  readonly isClustered: boolean;
  /** Where requests about the sandbox must be answered. */
  locate(sandboxId: SandboxId): Promise<Location>;
  /**
   * The node that has the checkpoint at hand. `here` when that node is away: a replicated checkpoint can be fetched.
   */
  locateCheckpoint(checkpointId: CheckpointId): Promise<Exclude<Location, { is: 'unreachable' }>>;
  /** Whether the sandbox lives on another node, or this node is being drained, so that it may go to another one. */
  mayMove(sandboxId: SandboxId): Promise<boolean>;
  /** Chooses the node for a new sandbox, or for one that cannot stay where it is. Throws `capacity` when none fits. */
  place(what: Placement): Promise<Place>;
  /** Undefined unless there is a node of this name that was not forgotten. */
  nodeByName(name: string): Promise<NodeAddress | undefined>;
}

/** A process outside the server that ends every instance of the node when its deadline passes. */
export interface LeaseGuard {
  /** Milliseconds on a clock that also counts while the machine sleeps (CLOCK_BOOTTIME). Read before a renewal is sent. */
  now(): number;
  /** Every instance of the node must have ended when `now` reaches the deadline, unless a later call moves it. */
  extend(deadline: number): Promise<void>;
}

/** Asks another node to resume a sandbox that this node has paused and replicated. Resolves when it runs there. */
export type HandOver = (
  to: NodeAddress,
  sandbox: { id: SandboxId; org: string },
  signal: AbortSignal,
) => Promise<void>;

/** What makes a server one of several nodes. */
export interface ClusterOptions {
  readonly name: string;
  /** The origin by which the other nodes reach this server. */
  readonly address: string;
  readonly version: string;
  readonly memoryMb: number;
  readonly processors: number;
  /**
   * The database over a connection that nothing else uses, for the renewals of the lease: they must not wait until transactions
   * of this server give a connection back. Absent: over the connections of everything else.
   */
  readonly renewals?: Database | undefined;
  readonly guard?: LeaseGuard | undefined;
  readonly handOver?: HandOver | undefined;
  /** Another node has raised this node's epoch: the server must end its instances, and itself. */
  readonly onFenced?: (() => void) | undefined;
}
