/**
 * Nodes with gVisor: a sandbox wakes on another node with its memory, a drain loses no request, and what a node that was killed
 * had is kept. `npm run test:cluster`; TORPOR_SANDBOXES and TORPOR_REQUESTS set the size of the drain.
 */
import { request as httpRequest } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxView } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { type ClusterNode, type ClusterWorld, makeClusterWorld, STORE } from './cluster-world.ts';

const SANDBOXES = Number(process.env['TORPOR_SANDBOXES'] ?? 20);
const REQUESTS = Number(process.env['TORPOR_REQUESTS'] ?? 500);
const RUNTIME = process.env['TORPOR_CLUSTER_RUNTIME'] === 'process' ? 'process' : 'gvisor';

const postgres = inject('postgresUrl');
const noGvisor = RUNTIME === 'gvisor' ? await whyNoGvisor() : null;
/** Short, so that the tests need not wait; long against the pauses of a busy machine. */
const LEASE = ['engine.nodeLeaseMs=8s', 'engine.nodeStopMs=2s'];

/** Counts its requests in memory, so that a counter that begins anew is a run that was lost. */
const COUNTER = {
  name: 'counter',
  command: `node -e "let n=0;require('http').createServer((q,s)=>s.end(String(++n))).listen(process.env.PORT)"`,
  port: 3000,
};

describe.skipIf(postgres === null || noGvisor !== null)(
  `nodes on ${RUNTIME}, with the store in ${STORE}`,
  { timeout: 900_000 },
  () => {
    let world: ClusterWorld;
    const nodes = new Map<string, ClusterNode>();
    const node = (name: string): ClusterNode => {
      const found = nodes.get(name);
      if (found === undefined) throw new Error(`There is no node ${name}.`);
      return found;
    };

    beforeAll(async () => {
      world = await makeClusterWorld(postgres ?? '', { runtime: RUNTIME, settings: LEASE });
      for (const name of ['a', 'b', 'c']) nodes.set(name, await world.start(name));
      const waiting = () =>
        world.query("SELECT id FROM checkpoints WHERE state = 'sealed' AND replicated_at IS NULL");
      while ((await waiting()).length > 0) await delay(200);
    }, 600_000);
    afterAll(() => world?.[Symbol.asyncDispose](), 300_000);

    const count = ({ port }: ClusterNode, { id }: Pick<SandboxView, 'id'>) =>
      new Promise<number>((resolve, reject) => {
        const headers = { 'torpor-sandbox': id, 'torpor-port': '3000' };
        const outgoing = httpRequest({ host: '127.0.0.1', port, path: '/', headers, agent: false });
        outgoing.on('error', reject).on('response', (response) => {
          text(response).then((body) => {
            if (response.statusCode === 200) resolve(Number(body));
            else reject(new Error(`${response.statusCode} of ${id} at ${port}: ${body}`));
          }, reject);
        });
        outgoing.end();
      });

    const nodeOf = async ({ id }: Pick<SandboxView, 'id'>) =>
      (await world.query<{ node: string }>('SELECT node FROM sandboxes WHERE id = $1', [id]))[0]?.node ?? '';

    it('wake a sandbox on another node, with its memory', async () => {
      const sandbox = await node('a').torpor.sandboxes.create({ services: [COUNTER] });
      const home = await nodeOf(sandbox);
      expect(await count(node('a'), sandbox)).toBe(1);
      await node('a').torpor.sandboxes.pause(sandbox.id, { durability: 'replicated' });
      await node('a').torpor.nodes.cordon(home);
      await delay(1_500);
      const began = performance.now();
      const next = await count(node('b'), sandbox);
      const wakeMs = performance.now() - began;
      expect(await nodeOf(sandbox)).not.toBe(home);
      if (RUNTIME === 'gvisor') expect(next).toBe(2);
      await node('a').torpor.nodes.uncordon(home);
      console.log(`a wake on another node took ${wakeMs.toFixed(0)} ms`);
      await node('a').torpor.sandboxes.kill(sandbox.id);
    });

    it(`drain a node with ${SANDBOXES} sandboxes while ${REQUESTS} requests come in, and none fails`, async () => {
      for (const name of ['b', 'c']) await node('b').torpor.nodes.cordon(name);
      const made: SandboxView[] = [];
      for (let i = 0; i < SANDBOXES; i++) {
        made.push(await node('a').torpor.sandboxes.create({ services: [COUNTER], idleSeconds: 3_600 }));
      }
      for (const name of ['b', 'c']) await node('b').torpor.nodes.uncordon(name);
      const counts = new Map<string, number>();
      const failures: string[] = [];
      const ask = async (i: number) => {
        const sandbox = made[i % made.length] as SandboxView;
        // Never at the node that goes: it may be stopped after its drain.
        await count(node('bc'[i % 2] ?? 'b'), sandbox).then(
          () => counts.set(sandbox.id, (counts.get(sandbox.id) ?? 0) + 1),
          (error: unknown) => failures.push(String(error)),
        );
      };
      const onA = async () => (await Promise.all(made.map(nodeOf))).filter((name) => name === 'a').length;
      expect(await onA()).toBe(SANDBOXES);
      const began = performance.now();
      await node('b').torpor.nodes.drain('a');
      const asking = (async () => {
        const open = new Set<Promise<void>>();
        for (let i = 0; i < REQUESTS; i++) {
          const one: Promise<void> = ask(i).finally(() => open.delete(one));
          open.add(one);
          if (open.size >= 16) await Promise.race(open);
          await delay(10);
        }
        await Promise.all(open);
      })();
      await expect
        .poll(async () => (await node('b').torpor.nodes.get('a')).drain?.endedAt ?? null, {
          timeout: 600_000,
          interval: 500,
        })
        .not.toBeNull();
      const drainMs = performance.now() - began;
      await asking;
      const { drain } = await node('b').torpor.nodes.get('a');
      const perSecond = (SANDBOXES * 1_000) / drainMs;
      console.log(
        `${SANDBOXES} sandboxes drained in ${drainMs.toFixed(0)} ms, ${perSecond.toFixed(2)} per second`,
        drain,
      );
      expect(failures).toEqual([]);
      expect(await onA()).toBe(0);
      for (const sandbox of made) {
        const next = await count(node('c'), sandbox);
        if (RUNTIME === 'gvisor') expect(next).toBe((counts.get(sandbox.id) ?? 0) + 1);
      }
      await node('b').torpor.nodes.uncordon('a');
      for (const { id } of made) await node('b').torpor.sandboxes.kill(id);
    });

    it('keep what a node had that was killed, as a recovered checkpoint, when it is back', async () => {
      const { torpor } = node('b');
      const sandbox = await torpor.sandboxes.create({ fallback: ['files', 'previous'], idleSeconds: 3_600 });
      const home = await nodeOf(sandbox);
      await torpor.sandboxes.exec(sandbox.id, { command: 'echo old > work' });
      await torpor.sandboxes.pause(sandbox.id, { durability: 'replicated' });
      await torpor.sandboxes.resume(sandbox.id);
      expect(await nodeOf(sandbox)).toBe(home);
      await torpor.sandboxes.exec(sandbox.id, { command: 'echo new > work; sync' });
      await node(home).kill('SIGKILL');
      const rest = [...nodes.values()].filter(({ name }) => name !== home)[0] as ClusterNode;
      const state = async () => (await rest.torpor.sandboxes.get(sandbox.id).catch(() => undefined))?.state;
      await expect.poll(state, { timeout: 60_000, interval: 500 }).toBe('paused');
      const woken = await rest.torpor.sandboxes.resume(sandbox.id);
      expect(woken.lost).toContain('files');
      expect((await rest.torpor.sandboxes.exec(sandbox.id, { command: 'cat work' })).stdout).toBe('old\n');

      nodes.set(home, await world.start(home));
      const recovered = async () => {
        const { items } = await rest.torpor.sandboxes.checkpoints(sandbox.id);
        return items.find((one) => one.recovered)?.id;
      };
      await expect.poll(recovered, { timeout: 60_000, interval: 500 }).toBeDefined();
      const from = await recovered();
      if (from === undefined) throw new Error('Nothing was recovered.');
      const fork = await node(home).torpor.sandboxes.create({ from });
      expect((await rest.torpor.sandboxes.exec(fork.id, { command: 'cat work' })).stdout).toBe('new\n');
    });
  },
);
