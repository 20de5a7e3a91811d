/**
 * The guard of a node, on real sandboxes: no process of a sandbox may outlive the lease of its node. The beats of the sandboxes
 * are read on the host.
 *
 *   npm run test:cluster
 *   TORPOR_FAULTS=50 TORPOR_SEED=7 npm run test:cluster   more faults, another seed
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, inject, it } from 'vitest';
import { bootTime } from '../../packages/host/src/guard/boot-time.ts';
import { linuxProcesses } from '../../packages/host/src/processes/linux-processes.ts';
import { runningContainers } from '../../packages/runtime-gvisor/src/index.ts';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type ClusterNode, makeClusterWorld } from './cluster-world.ts';

const LEASE_MS = 6_000;
const STOP_MS = 2_000;
const SANDBOXES = 3;
const FAULTS = Number(process.env['TORPOR_FAULTS'] ?? 9);
const SEED = Number(process.env['TORPOR_SEED'] ?? 1);

const postgres = inject('postgresUrl');
const noGvisor = await whyNoGvisor();

async function guardOf({ dataDir }: ClusterNode): Promise<number> {
  return (JSON.parse(await readFile(join(dataDir, 'guard.json'), 'utf8')) as { pid: number }).pid;
}

/** What runs of the sandboxes of a node, seen from the host. */
async function runningOn(
  runtime: 'process' | 'gvisor',
  node: ClusterNode,
  ids: readonly string[],
): Promise<number> {
  if (runtime === 'gvisor') return (await runningContainers(node.dataDir)).length;
  const alive = (await linuxProcesses.all()).filter(({ state }) => state !== 'dead');
  const marks = new Set(ids.map((id) => `TORPOR_SANDBOX=${id}`));
  const marked = await Promise.all(
    alive.map(async (one) => (await linuxProcesses.torporVariables(one)).some((line) => marks.has(line))),
  );
  return marked.filter(Boolean).length;
}

const ACCIDENTS = ['server killed', 'server stopped', 'guard killed'] as const;

describe.each(['process', 'gvisor'] as const)('a node with sandboxes in %s', (runtime) => {
  it.skipIf(postgres === null || (runtime === 'gvisor' && noGvisor !== null))(
    'runs none of them when its lease has ended, whatever happens to its server or its guard',
    async () => {
      await using world = await makeClusterWorld(postgres ?? '', {
        runtime,
        settings: [`engine.nodeLeaseMs=${LEASE_MS}ms`, `engine.nodeStopMs=${STOP_MS}ms`],
      });
      let random = SEED;
      const next = (below: number) => {
        random = (random * 1_103_515_245 + 12_345) % 2_147_483_648;
        return Math.floor((random / 2_147_483_648) * below);
      };
      const ms: number[] = [];
      for (let fault = 0; fault < FAULTS; fault++) {
        const accident = ACCIDENTS[next(ACCIDENTS.length)] ?? 'server killed';
        const node = await world.start('a');
        const ids: string[] = [];
        for (let i = 0; i < SANDBOXES; i++) ids.push((await node.torpor.sandboxes.create({})).id);
        expect(await runningOn(runtime, node, ids)).toBeGreaterThanOrEqual(SANDBOXES);
        const guard = await guardOf(node);
        const [lease] = await world.query<{ left: string }>(
          `SELECT lease_until - (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS left FROM nodes WHERE name = 'a'`,
        );
        // No renewal can be accepted after this moment that the guard does not know of.
        const latest = bootTime() + Math.max(Number(lease?.left), LEASE_MS);
        const began = bootTime();
        if (accident === 'server killed') process.kill(node.pid, 'SIGKILL');
        else if (accident === 'server stopped') process.kill(node.pid, 'SIGSTOP');
        else process.kill(guard, 'SIGKILL');
        while ((await runningOn(runtime, node, ids)) > 0 && bootTime() < latest + 30_000) await delay(50);
        const ended = bootTime();
        ms.push(Math.round(ended - began));
        expect(await runningOn(runtime, node, ids), accident).toBe(0);
        expect(ended, `${accident}, fault ${fault}`).toBeLessThan(latest);
        // The guard ends its server too, also a stopped one: it must not go on when it is continued.
        expect(await node.ended).toBe('SIGKILL');
      }
      // A new server removes the networks and mounts of the server that was killed last.
      await world.start('a');
      console.log(`${runtime}: seed ${SEED}, ${FAULTS} faults, sandboxes ended after ms: ${ms.join(' ')}`);
    },
  );
});
