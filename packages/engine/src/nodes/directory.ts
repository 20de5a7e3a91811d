/** Where sandboxes live, and which node a new one goes to. */
import type { CheckpointId, SandboxId } from '@torpor/protocol';
import { findCheckpoint } from '../checkpoints/checkpoint.ts';
import type { Context } from '../context.ts';
import type { Location, NodeAddress, NodeDirectory, Place, Placement } from '../ports/nodes.ts';
import { isLive, listNodes, type Node } from './node.ts';
import { choosePlace } from './placement.ts';

/** Nodes change rarely. A request that is sent to a node which has just died fails anyway, with fresh rows too. */
const NODES_KEPT_MS = 1_000;

export class Directory implements NodeDirectory {
  readonly #context: () => Context;
  #nodes: { readonly readAt: number; readonly byName: Promise<ReadonlyMap<string, Node>> } | undefined;

  /** A function, because the directory is part of the context that it returns. */
  constructor(context: () => Context) {
    this.#context = context;
  }

  get #ctx(): Context {
    return this.#context();
  }

  get self(): string {
    return this.#ctx.node.name;
  }

  get isClustered(): boolean {
    return this.#ctx.node.isClustered;
  }

  async locate(sandboxId: SandboxId): Promise<Location> {
    if (!this.isClustered) return HERE;
    const [row] = await this.#ctx.db.query<Home>(
      `SELECT s.node, s.state, s.memory_mb, s.runtime, s.checkpoint_id, c.replicated_at, c.external
       FROM sandboxes s LEFT JOIN checkpoints c ON c.id = s.checkpoint_id WHERE s.id = $1`,
      [sandboxId],
    );
    if (row === undefined) return HERE;
    const node = (await this.nodes()).get(row.node);
    const isPortable = row.state === 'paused' && (row.replicated_at !== null || row.external === 1);
    const isHome = node !== undefined && isLive(node);
    // A node that takes no new sandboxes does not wake sleeping ones either, when another node can.
    if (isPortable && (!isHome || node.cordoned)) {
      const place = await this.place({
        runtime: row.runtime,
        memoryMb: row.memory_mb ?? 0,
        checkpointId: row.checkpoint_id ?? undefined,
        except: row.node,
      }).catch(() => undefined);
      if (place?.is === 'elsewhere') return { ...place, isPlaced: true };
      if (place !== undefined) return place;
    }
    if (row.node === this.self) return HERE;
    if (isHome) return { is: 'elsewhere', node: node.name, address: node.address };
    // Any node answers for an ended sandbox, from the database.
    if (ENDED.includes(row.state)) return HERE;
    return { is: 'unreachable', node: row.node, since: node?.leaseUntil ?? 0 };
  }

  async locateCheckpoint(id: CheckpointId): Promise<Exclude<Location, { is: 'unreachable' }>> {
    if (!this.isClustered) return HERE;
    const checkpoint = await findCheckpoint(this.#ctx.db, id);
    if (checkpoint === undefined || checkpoint.node === this.self) return HERE;
    const node = (await this.nodes()).get(checkpoint.node);
    return node !== undefined && isLive(node)
      ? { is: 'elsewhere', node: node.name, address: node.address }
      : HERE;
  }

  async mayMove(sandboxId: SandboxId): Promise<boolean> {
    if (!this.isClustered) return false;
    if ((await this.locate(sandboxId)).is !== 'here') return true;
    // A drain may have begun at another node a moment ago.
    this.refresh();
    return (await this.nodes()).get(this.self)?.draining === true;
  }

  async place(what: Placement): Promise<Place> {
    if (!this.isClustered) return HERE;
    return choosePlace(this.#ctx, [...(await this.nodes()).values()], what);
  }

  async nodeByName(name: string): Promise<NodeAddress | undefined> {
    if (!this.isClustered) return undefined;
    const node = (await this.nodes()).get(name);
    return node === undefined ? undefined : { node: node.name, address: node.address };
  }

  /** All nodes that were not forgotten. The answer may be a second old. */
  nodes(): Promise<ReadonlyMap<string, Node>> {
    const { clock, db } = this.#ctx;
    const now = clock.monotonic();
    if (this.#nodes === undefined || now - this.#nodes.readAt >= NODES_KEPT_MS) {
      const byName = listNodes(db).then((nodes) => new Map(nodes.map((node) => [node.name, node])));
      this.#nodes = { readAt: now, byName };
      byName.catch(() => this.refresh());
    }
    return this.#nodes.byName;
  }

  /** Makes the next call of `nodes` read the database. */
  refresh(): void {
    this.#nodes = undefined;
  }
}

const HERE = { is: 'here' } as const;
const ENDED: readonly string[] = ['killed', 'failed', 'lost'];

type Home = {
  readonly node: string;
  readonly state: string;
  readonly memory_mb: number | null;
  readonly runtime: string;
  readonly checkpoint_id: `ckpt_${string}` | null;
  readonly replicated_at: number | null;
  readonly external: number | null;
};
