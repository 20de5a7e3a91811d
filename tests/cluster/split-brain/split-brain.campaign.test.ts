/**
 * Split brain: three nodes under random faults, and sandboxes that must never run twice. Nodes are killed, stopped, and cut off
 * from the database, the store, each other and everything, while clients use every sandbox through every node.
 *
 *   npm run test:cluster                                    200 faults, 20 sandboxes, seed 1
 *   TORPOR_FAULTS=50 TORPOR_SEED=7 npm run test:cluster     fewer faults, another seed
 *
 * TORPOR_CLUSTER_RUNTIME=gvisor plays them in gVisor. The disks have no room, so that everything that may be evicted is.
 *
 * In the end no two runs of a sandbox have beaten at the same time, every sandbox runs, is paused, or is `unknown` for a stated
 * reason, and everything that was said to be replicated is there.
 */
import { chmod, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { CheckpointId, SandboxView, Torpor } from '@torpor/sdk';
import { describe, expect, inject, it } from 'vitest';
import { linuxProcesses } from '../../../packages/host/src/processes/linux-processes.ts';
import { whyNoGvisor } from '../../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { Random } from '../../seeded-random.ts';
import { type ClusterWorld, makeClusterWorld, STORE } from '../cluster-world.ts';
import { type Beat, beatCommand, overlaps, parseBeats, type Run, runsOf } from './beats.ts';
import { Client } from './client.ts';
import { afflict, drawFault, type Fault, type Timing } from './faults.ts';
import { GVISOR_BEAT_COMMAND, GvisorBeatReader } from './gvisor-beats.ts';
import { SupervisedNode } from './supervised-node.ts';

const FAULTS = Number(process.env['TORPOR_FAULTS'] ?? 200);
const SANDBOXES = Number(process.env['TORPOR_SANDBOXES'] ?? 20);
const SEED = Number(process.env['TORPOR_SEED'] ?? 1);
/** How many faults there are at a time. With three nodes, one is always left. */
const AT_ONCE = 2;
const RUNTIME = process.env['TORPOR_CLUSTER_RUNTIME'] === 'gvisor' ? 'gvisor' : 'process';
const TIMING: Timing =
  RUNTIME === 'gvisor' ? { leaseMs: 10_000, stopMs: 4_000 } : { leaseMs: 6_000, stopMs: 2_000 };
/** How many of the checkpoints are started from in the end. */
const TRIED = 30;

const postgres = inject('postgresUrl');

const noGvisor = RUNTIME === 'gvisor' ? await whyNoGvisor() : null;

describe.skipIf(postgres === null || noGvisor !== null)(
  `three nodes on ${RUNTIME} under random faults, with the store in ${STORE}`,
  () => {
    it('never run a sandbox twice, and lose nothing that they said is replicated', async ({ task }) => {
      const directory = await mkdtemp(join(tmpdir(), 'torpor-split-brain-'));
      const beats = join(directory, 'beats');
      await mkdir(beats);
      await chmod(beats, 0o1777);
      await chmod(directory, 0o711);
      await using world = await makeClusterWorld(postgres ?? '', {
        linked: true,
        runtime: RUNTIME,
        logs: directory,
        settings: [
          `engine.nodeLeaseMs=${TIMING.leaseMs}ms`,
          `engine.nodeStopMs=${TIMING.stopMs}ms`,
          // A checkpoint that was acknowledged is looked at in the end.
          'engine.keepPrevious=1000',
          'engine.reconcileEveryMs=2s',
          'engine.diskEveryMs=2s',
          'store.cacheBytes=1',
        ],
      });
      const nodes = ['a', 'b', 'c'].map((name) => new SupervisedNode(world, name));
      const reader =
        RUNTIME === 'gvisor'
          ? new GvisorBeatReader(() => nodes.flatMap(({ dataDir }) => dataDir ?? []))
          : undefined;
      const command = RUNTIME === 'gvisor' ? GVISOR_BEAT_COMMAND : beatCommand(beats);
      const clients: Client[] = [];
      const seeds = new Random(SEED);
      // Every node can start from the templates then.
      for (const node of nodes) await node.ready();
      await untilReplicated(world);
      for (let i = 0; i < SANDBOXES; i++) {
        const { torpor } = await (nodes[i % nodes.length] as SupervisedNode).ready();
        const { id } = await torpor.sandboxes.create({
          idleSeconds: 86_400,
          fallback: ['files', 'previous'],
          services: [{ name: 'beat', command }],
          ...(i % 2 === 0 ? { checkpointEverySeconds: 15 } : {}),
        });
        clients.push(new Client(id, nodes, new Random(seeds.below(2 ** 31))));
      }
      await untilReplicated(world);

      const began = performance.now();
      const counts = await play(world, nodes, clients, seeds);
      const seconds = (performance.now() - began) / 1_000;
      console.log(`seed ${SEED}: ${FAULTS} faults in ${seconds.toFixed(0)} s:`, counts);
      console.log(
        'starts of the nodes:',
        Object.fromEntries(nodes.map(({ name, starts }) => [name, starts])),
      );
      console.log('answers to the clients:', sum(clients.map(({ answers }) => answers)));

      for (const node of nodes) await node.ready();
      const { torpor } = await (nodes[0] as SupervisedNode).ready();
      const views = await untilSettled(torpor, clients);
      const runs = reader === undefined ? await readRuns(beats, clients) : runsIn(reader.stop(), clients);
      expect.soft([...runs].filter(([, of]) => of.length === 0)).toEqual([]);
      console.log(
        `${[...runs.values()].flat().length} runs, ${[...runs.values()].flat().reduce((all, run) => all + run.beats, 0)} beats`,
      );
      const twice = [...runs].flatMap(([id, of]) => overlaps(of).map((text) => `${id}: ${text}`));
      expect.soft(twice, 'runs of one sandbox at the same time').toEqual([]);
      expect
        .soft(clients.flatMap(({ id, unexpected }) => unexpected.map((text) => `${id}: ${text}`)))
        .toEqual([]);
      expect.soft(views.filter((view) => !isAccountedFor(view))).toEqual([]);
      expect.soft(await lostCheckpoints(world, clients)).toEqual([]);
      expect.soft(await lostNumbers(torpor, world, clients)).toEqual([]);
      expect.soft(await unusable(torpor, clients, seeds)).toEqual([]);

      await Promise.all(nodes.map((node) => node.release()));
      for await (const { id } of torpor.sandboxes.list()) await torpor.sandboxes.kill(id);
      await expect.poll(() => processesOf(clients), { timeout: 30_000 }).toEqual([]);
      // The logs of the servers say why.
      if (task.result?.state !== 'fail') await rm(directory, { recursive: true });
    });
  },
);

/** Resolves when all faults have happened, and are over. */
async function play(
  world: ClusterWorld,
  nodes: readonly SupervisedNode[],
  clients: readonly Client[],
  random: Random,
): Promise<Readonly<Record<string, number>>> {
  const faults = Array.from({ length: FAULTS }, () => drawFault(random, TIMING));
  const gaps = faults.map(() => random.between(0, 2_000));
  const stopping = new AbortController();
  const using = clients.map((client) => client.run(stopping.signal, 3_000));
  const free = [...nodes];
  const counts: Record<string, number> = {};
  let next = 0;
  const afflictInTurn = async () => {
    for (let i = next++; i < faults.length; i = next++) {
      const fault = faults[i] as Fault;
      const [node] = free.splice(i % free.length, 1) as [SupervisedNode];
      await node.ready();
      await afflict(node, await world.links(node.name), fault);
      counts[fault.kind] = (counts[fault.kind] ?? 0) + 1;
      await delay(gaps[i] ?? 0);
      free.push(node);
      if ((i + 1) % 20 === 0) console.log(`${i + 1} of ${faults.length} faults`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, afflictInTurn));
  stopping.abort();
  await Promise.all(using);
  return counts;
}

async function untilReplicated(world: ClusterWorld): Promise<void> {
  const sql = "SELECT id FROM checkpoints WHERE state = 'sealed' AND replicated_at IS NULL";
  while ((await world.query(sql)).length > 0) await delay(200);
}

/** All nodes are back: no operation is left, and no sandbox between two states. */
async function untilSettled(torpor: Torpor, clients: readonly Client[]): Promise<SandboxView[]> {
  for (let tries = 0; ; tries++) {
    const views = await Promise.all(clients.map(({ id }) => torpor.sandboxes.get(id).catch(() => undefined)));
    const known = views.filter((view) => view !== undefined);
    const isSettled = known.every((view) => isAccountedFor(view) && view.operationId === null);
    if (known.length === clients.length && (isSettled || tries > 120)) return known;
    if (tries > 240) throw new Error('Some sandboxes cannot be asked about though all nodes are back.');
    await delay(500);
  }
}

function isAccountedFor({ state, evidence, reason }: SandboxView): boolean {
  if (evidence === 'unknown') return reason !== null;
  return state === 'running' || state === 'paused';
}

function runsIn(
  beats: ReadonlyMap<string, readonly Beat[]>,
  clients: readonly Client[],
): ReadonlyMap<string, readonly Run[]> {
  return new Map(clients.map(({ id }) => [id, runsOf(beats.get(id) ?? [])]));
}

async function readRuns(
  directory: string,
  clients: readonly Client[],
): Promise<ReadonlyMap<string, readonly Run[]>> {
  const runs = await Promise.all(
    clients.map(async ({ id }) => {
      const text = await readFile(join(directory, id), 'utf8');
      return [id, runsOf(parseBeats(text))] as const;
    }),
  );
  return new Map(runs);
}

/** Checkpoints of which a client was told that they are sealed, and that are not there. */
async function lostCheckpoints(world: ClusterWorld, clients: readonly Client[]): Promise<string[]> {
  const rows = await world.query<{ id: string; state: string; health: string; faults: string }>(
    'SELECT id, state, health, faults FROM checkpoints',
  );
  const byId = new Map(rows.map((row) => [row.id, row]));
  return clients.flatMap((client) =>
    client.acknowledged
      .map(({ id }) => byId.get(id) ?? { id, state: 'absent', health: 'absent', faults: '' })
      .filter(({ state, health }) => state !== 'sealed' || health === 'damaged')
      .map(({ id, state, health, faults }) => `${id} of ${client.id} is ${state}, ${health}: ${faults}`),
  );
}

/** Sandboxes that have less than they must have, or less than they wrote without an event that says that files were lost. */
async function lostNumbers(
  torpor: Torpor,
  world: ClusterWorld,
  clients: readonly Client[],
): Promise<string[]> {
  const found: string[] = [];
  for (const client of clients) {
    await torpor.sandboxes.resume(client.id);
    const number = await numberIn(torpor, client.id);
    if (number < client.floor) found.push(`${client.id} has ${number}, and ${client.floor} was replicated`);
    if (number >= client.written) continue;
    const events = await world.query<{ data: string }>(
      "SELECT data FROM events WHERE sandbox_id = $1 AND type IN ('sandbox.recovered', 'sandbox.resumed', 'sandbox.started')",
      [client.id],
    );
    const isSaid = events.some(({ data }) => (JSON.parse(data).lost ?? []).includes('files'));
    if (!isSaid) found.push(`${client.id} has ${number}, wrote ${client.written}, and no event says so`);
  }
  return found;
}

async function numberIn({ sandboxes }: Torpor, id: SandboxView['id']): Promise<number> {
  return Number((await sandboxes.exec(id, { command: 'cat number 2>/dev/null || echo 0' })).stdout);
}

/** Starts from some of the acknowledged checkpoints, and reads what they must hold. */
async function unusable(torpor: Torpor, clients: readonly Client[], random: Random): Promise<string[]> {
  const found: string[] = [];
  const all = clients.flatMap(({ acknowledged }) => acknowledged);
  for (let i = 0; i < Math.min(TRIED, all.length); i++) {
    const { id, holds } = random.of(all);
    try {
      const fork = await startFrom(torpor, id);
      const number = await numberIn(torpor, fork.id);
      if (number < holds) found.push(`${id} has ${number}, and must have ${holds}`);
      await torpor.sandboxes.kill(fork.id);
    } catch (thrown) {
      found.push(`${id}: ${thrown}`);
    }
  }
  return found;
}

function startFrom({ sandboxes }: Torpor, from: CheckpointId): Promise<SandboxView> {
  return sandboxes.create({ from, services: [] });
}

function sum(all: readonly ReadonlyMap<string, number>[]): Readonly<Record<string, number>> {
  const total: Record<string, number> = {};
  for (const one of all) for (const [name, n] of one) total[name] = (total[name] ?? 0) + n;
  return Object.fromEntries(Object.entries(total).sort());
}

async function processesOf(clients: readonly Client[]): Promise<number[]> {
  const marks = new Set(clients.map(({ id }) => `TORPOR_SANDBOX=${id}`));
  const alive = (await linuxProcesses.all()).filter(({ state }) => state !== 'dead');
  const found = await Promise.all(
    alive.map(async (one) =>
      (await linuxProcesses.torporVariables(one)).some((line) => marks.has(line)) ? [one.pid] : [],
    ),
  );
  return found.flat();
}
