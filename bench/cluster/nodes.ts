/** The two nodes of `bench:cluster`, and what its parts do with them. */
import { request as send } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxId } from '@torpor/protocol';
import type { ClusterNode, ClusterWorld } from '../../tests/cluster/cluster-world.ts';
import { service } from '../lifecycle/server.ts';

/** No warm sleep: every wake reads the checkpoint. */
const ENV = { TORPOR_LOG_LEVEL: 'error', TORPOR_RUNTIMES_WARM_KEEP_MS: '0' };

export interface BenchCluster {
  readonly world: ClusterWorld;
  readonly nodes: readonly [ClusterNode, ClusterNode];
  /** For files of a part; removed in the end. */
  readonly scratch: string;
  /** Makes a sandbox on this node, with a server that holds so many megabytes of random bytes. */
  create(on: ClusterNode, megabytes: number): Promise<SandboxId>;
  other(node: ClusterNode): ClusterNode;
  nodeOf(id: SandboxId): Promise<ClusterNode>;
  replicated(): Promise<void>;
}

export async function makeBenchCluster(world: ClusterWorld, scratch: string): Promise<BenchCluster> {
  const nodes = [await world.start('a', { env: ENV }), await world.start('b', { env: ENV })] as const;
  const other = (node: ClusterNode) => (node === nodes[0] ? nodes[1] : nodes[0]);
  const cluster: BenchCluster = {
    world,
    nodes,
    scratch,
    other,
    async create(on, megabytes) {
      await cordoned(on, other(on).name);
      const { id } = await on.torpor.sandboxes.create({
        services: [service(megabytes)],
        idleSeconds: 86_400,
        // Fifty of them fit on a node.
        resources: { memoryMb: 1_024 },
      });
      await on.torpor.nodes.uncordon(other(on).name);
      return id;
    },
    async nodeOf(id) {
      const [row] = await world.query<{ node: string }>('SELECT node FROM sandboxes WHERE id = $1', [id]);
      return row?.node === 'a' ? nodes[0] : nodes[1];
    },
    async replicated() {
      const sql = "SELECT id FROM checkpoints WHERE state = 'sealed' AND replicated_at IS NULL";
      while ((await world.query(sql)).length > 0) await delay(100);
    },
  };
  await cluster.replicated();
  return cluster;
}

/** What the nodes know of each other may be a second old. */
export async function cordoned(through: ClusterNode, name: string): Promise<void> {
  await through.torpor.nodes.cordon(name);
  await delay(1_100);
}

/** A request to the server in the sandbox, through this node. Rejects unless the server has answered. */
export function request({ port }: ClusterNode, id: SandboxId): Promise<void> {
  const headers = { 'torpor-sandbox': id, 'torpor-port': '8080' };
  return new Promise((resolve, reject) => {
    send({ host: '127.0.0.1', port, headers, agent: false }, (response) => {
      const { statusCode } = response.resume();
      if (statusCode === 200) response.on('end', resolve);
      else reject(new Error(`${id} was not woken: status ${statusCode}`));
    })
      .on('error', reject)
      .end();
  });
}

/** Joins a resume that may still be ending after the first answer. */
export async function pause({ torpor }: ClusterNode, id: SandboxId) {
  await torpor.sandboxes.resume(id);
  return torpor.sandboxes.pause(id, { durability: 'replicated' });
}
