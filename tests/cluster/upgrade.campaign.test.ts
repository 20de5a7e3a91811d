/**
 * Nodes of two adjacent versions work together, and a rolling restart of all nodes loses no request. `npm run test:cluster`;
 * TORPOR_OLD_COMMIT is the old version, by default the commit before this one.
 */
import { request as httpRequest } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxView } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { type ClusterNode, type ClusterWorld, makeClusterWorld } from './cluster-world.ts';
import { checkOut, type OtherVersion } from './other-version.ts';

const RUNTIME = process.env['TORPOR_CLUSTER_RUNTIME'] === 'gvisor' ? 'gvisor' : 'process';
const OLD = process.env['TORPOR_OLD_COMMIT'] ?? 'HEAD~1';
const CLIENTS = 4;
const FLAGS = ['--drain-on-stop'];
/** Long against the start of a server on a busy machine. */
const LEASE = ['engine.nodeLeaseMs=20s', 'engine.nodeStopMs=2s'];

const SERVICE = {
  name: 'web',
  command: `node -e "require('http').createServer((q,s)=>s.end('here')).listen(process.env.PORT)"`,
  port: 3000,
};

const postgres = inject('postgresUrl');
const old = postgres === null ? undefined : await checkOut(OLD);

describe.skipIf(old === undefined)(
  `an upgrade from ${old?.commit.slice(0, 9)} on ${RUNTIME}`,
  { timeout: 1_200_000 },
  () => {
    const { path: version } = old as OtherVersion;
    let world: ClusterWorld;
    const nodes = new Map<string, ClusterNode>();
    /** Those that the load balancer sends requests to. */
    const open = new Set<ClusterNode>();
    const sandboxes: SandboxView[] = [];

    beforeAll(async () => {
      world = await makeClusterWorld(postgres ?? '', { runtime: RUNTIME, settings: LEASE });
      for (const name of ['a', 'b', 'c']) {
        const node = await world.start(name, { version, flags: FLAGS });
        nodes.set(name, node);
        open.add(node);
      }
      for (let i = 0; i < 6; i++) {
        sandboxes.push(await anyNode().torpor.sandboxes.create({ services: [SERVICE], idleSeconds: 86_400 }));
      }
      // It wakes by a request.
      await anyNode().torpor.sandboxes.pause((sandboxes[0] as SandboxView).id);
    }, 600_000);
    afterAll(async () => {
      await world?.[Symbol.asyncDispose]();
      await old?.[Symbol.asyncDispose]();
    }, 300_000);

    const anyNode = () => [...open][Math.floor(Math.random() * open.size)] as ClusterNode;
    const ask = ({ port }: ClusterNode, { id }: SandboxView) =>
      new Promise<string>((resolve, reject) => {
        const headers = { 'torpor-sandbox': id, 'torpor-port': '3000' };
        const outgoing = httpRequest({ host: '127.0.0.1', port, path: '/', headers, agent: false });
        outgoing.on('error', reject).on('response', (response) => {
          text(response).then((body) => resolve(`${response.statusCode} ${body}`), reject);
        });
        outgoing.end();
      });

    /** What all nodes do for sandboxes of each other, in either version. */
    async function useEachOther(): Promise<void> {
      for (const { torpor } of open) {
        const made = await torpor.sandboxes.create();
        for (const other of open) {
          const command = { command: 'echo $((6 * 7))' };
          expect(await other.torpor.sandboxes.exec(made.id, command)).toMatchObject({ stdout: '42\n' });
        }
        const listed: string[] = [];
        for await (const { id } of torpor.sandboxes.list()) listed.push(id);
        expect(listed).toContain(made.id);
        await anyNode().torpor.sandboxes.pause(made.id);
        await anyNode().torpor.sandboxes.resume(made.id);
        await anyNode().torpor.sandboxes.kill(made.id);
      }
    }

    it('goes node by node, and no request is lost', async () => {
      const ended = new AbortController();
      const failures: string[] = [];
      let answered = 0;
      const client = async () => {
        while (!ended.signal.aborted) {
          const node = anyNode();
          const sandbox = sandboxes[Math.floor(Math.random() * sandboxes.length)] as SandboxView;
          const answer = await ask(node, sandbox).catch(String);
          if (answer === '200 here') answered++;
          else failures.push(`${node.name}, ${sandbox.id}: ${answer}`);
          await delay(50);
        }
      };
      const clients = Array.from({ length: CLIENTS }, client);
      await useEachOther();
      for (const name of ['a', 'b', 'c']) {
        const before = nodes.get(name) as ClusterNode;
        open.delete(before);
        await before.kill('SIGTERM');
        const upgraded = await world.start(name, { flags: FLAGS });
        nodes.set(name, upgraded);
        open.add(upgraded);
        await useEachOther();
      }
      ended.abort();
      await Promise.all(clients);
      console.log(`${answered} requests were answered, ${failures.length} were not`);
      expect(failures).toEqual([]);
      expect(answered).toBeGreaterThan(100);
      const states = await world.query<{ state: string }>(
        "SELECT state FROM sandboxes WHERE state NOT IN ('killed')",
      );
      expect(states).toEqual(sandboxes.map(() => ({ state: 'running' })));
    });
  },
);
