import { existsSync } from 'node:fs';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import type { Captured, Engine, Instance, Staging, TemplateSpec } from '@torpor/engine';
import {
  builtInSpec,
  type FreshDatabase,
  failureOf,
  freshDatabase,
  NO_SPEC,
  newInstance,
  sealing,
  startFrom,
  unhurried,
} from '@torpor/engine/testing';
import { tar } from '@torpor/host/testing';
import { type SandboxView, type Service, TorporError } from '@torpor/protocol';
import { engineOn } from '@torpor/runtime-shared/testing';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';
import { tinyRoot } from '../../testing/tiny-root.ts';

const why = await whyNoGvisor();
const PORT = 3000;

/** Answers with an id and the number of requests, both kept in memory only. */
const COUNTER = `
const who = require('node:crypto').randomUUID();
let count = 0;
require('node:http').createServer((request, response) => {
  if (request.url === '/who') response.end(JSON.stringify({ who, count: ++count, place: process.env.PLACE }));
  else response.end('ready');
}).listen(${PORT}, '127.0.0.1');
`;

interface Answer {
  readonly who: string;
  readonly count: number;
  readonly place?: string;
}

describe.skipIf(why !== null)(
  `templates of gVisor${why === null ? '' : ` (${why})`}`,
  { timeout: 120_000 },
  () => {
    let world: GvisorWorld;
    let service: Service;
    let root: Buffer;
    beforeAll(async () => {
      world = await makeGvisorWorld({ hostResourcePoolSize: 0 });
      service = {
        name: 'web',
        command: `exec ${await world.node()} /srv/counter.cjs`,
        port: PORT,
        env: { PLACE: 'template' },
        ready: { path: '/' },
      };
      root = await tinyRoot({ '/etc/os-release': 'NAME=Tiny\n', '/srv/counter.cjs': COUNTER });
    }, 120_000);
    afterEach(() => world?.dispose(), 60_000);
    afterAll(() => world?.close(), 60_000);

    const archiveOf = async (bytes: Buffer) => {
      const path = join(world.dataDir, 'archive');
      await writeFile(path, bytes);
      return path;
    };
    const orderOf = async (bytes: Buffer, services: readonly Service[] = []) => {
      const phases: string[] = [];
      const order: TemplateSpec = {
        name: 'tiny',
        root: { kind: 'archive', path: await archiveOf(bytes) },
        services,
        env: {},
        resources: {},
        progress: async (phase) => void phases.push(phase),
      };
      return { order, phases };
    };
    const prepare = (order: TemplateSpec) =>
      sealing(world, (staging) => world.runtime.prepareTemplate(order, staging, unhurried));
    const ask = async (instance: Instance) => JSON.parse(await world.get(instance, PORT, '/who')) as Answer;
    const layers = async () => (await readdir(join(world.dataDir, 'checkpoints', 'layers'))).sort();

    /** Cleans up after the failure as the engine does with a checkpoint that was not committed. */
    async function refusal(order: TemplateSpec, signal = unhurried) {
      let staged: Staging | undefined;
      const failure = await failureOf(
        sealing(world, (staging): Promise<Captured> => {
          staged = staging;
          return world.runtime.prepareTemplate(order, staging, signal);
        }),
      );
      if (staged === undefined) throw new Error('The checkpoint was not staged.');
      const { checkpointId: id, path } = staged;
      await world.runtime.discard({ id, path, needs: {}, parts: { files: true, memory: false } }, unhurried);
      await world.store.remove(id);
      return failure;
    }

    it('have a root of their own, and services that run in every sandbox', async () => {
      const { order, phases } = await orderOf(zstdCompressSync(root), [service]);
      const template = await prepare(order);
      expect(phases).toEqual(['unpacking', 'booting', 'starting services', 'capturing']);
      expect(template.parts).toEqual({ files: true, memory: true });
      const spec = { ...NO_SPEC, services: [service] };
      const [first, second, third] = [newInstance(), newInstance(), newInstance()];
      for (const instance of [first, second]) {
        expect(await startFrom(world, instance, template, 'memory', spec)).toEqual({
          mode: 'memory',
          lost: [],
        });
      }
      const { who, count } = await ask(first);
      expect(count).toBe(1);
      expect(await ask(first)).toEqual({ who, count: 2, place: 'template' });
      // Both were restored from the same image, and have run independently since.
      expect(await ask(second)).toEqual({ who, count: 1, place: 'template' });
      expect(await text(await (await world.agent(first)).files.read('/etc/os-release'))).toBe('NAME=Tiny\n');
      expect(await world.run(first, '[ ! -e /usr/bin/env ] && [ ! -e /bin/ls ]')).toMatchObject({
        exitCode: 0,
      });

      expect(await startFrom(world, third, template, 'files', spec)).toEqual({ mode: 'files', lost: [] });
      const restarted = await ask(third);
      expect(restarted).toMatchObject({ count: 1, place: 'template' });
      expect(restarted.who).not.toBe(who);

      const own = { ...service, env: { PLACE: 'sandbox' } };
      const instance = await world.started({ services: [own] }, template);
      const replaced = await ask(instance);
      expect(replaced).toMatchObject({ count: 1, place: 'sandbox' });
      expect(replaced.who).not.toBe(who);
      await world.dispose();
      await world.runtime.discard(template, unhurried);
    });

    it('are refused with the reason when their archive is hostile, and leave no layer', async () => {
      const before = await layers();
      const link = { name: 'escape', type: '2', target: '/etc' };
      const hostile = [
        tar({ name: '../outside', content: 'x' }),
        tar({ name: '/etc/passwd', content: 'x' }),
        tar(link, { name: 'escape/passwd', content: 'x' }),
        tar({ name: 'disk', type: '4' }),
        gzipSync(root).subarray(0, 20_000),
        Buffer.from('not an archive at all'),
      ];
      for (const bytes of hostile) {
        const { order } = await orderOf(bytes);
        const { code, message } = await refusal(order);
        expect([code, message.includes(world.dataDir)]).toEqual(['invalid_request', false]);
      }
      expect(await layers()).toEqual(before);
    });

    it('fail with the last output of a service that does not become ready', async () => {
      const before = await layers();
      const broken = { name: 'web', command: 'echo no luck; exit 3', port: PORT };
      expect(await refusal((await orderOf(root, [broken])).order)).toMatchObject({
        code: 'conflict',
        details: { service: 'web', output: 'no luck\n' },
      });
      const silent = { name: 'web', command: 'while :; do read x; done', port: PORT };
      const { order } = await orderOf(root, [{ ...silent, ready: { timeoutSeconds: 1 } }]);
      expect(await refusal(order)).toMatchObject({ code: 'timeout' });
      expect(await layers()).toEqual(before);
    });

    it('leave no process and no layer when the caller aborts', async () => {
      const before = await layers();
      const stop = new AbortController();
      const { order } = await orderOf(root, [{ name: 'web', command: 'read x', port: PORT }]);
      const progress = async (phase: string) => {
        if (phase === 'starting services') stop.abort(new TorporError('timeout', 'It takes too long.'));
      };
      expect(await refusal({ ...order, progress }, stop.signal)).toMatchObject({ code: 'timeout' });
      expect(await readdir(join(world.dataDir, 'gvisor', 'berths'))).toEqual([]);
      expect(await layers()).toEqual(before);
    });

    it('that are not built in are refused', async () => {
      expect(await refusal(builtInSpec('other'))).toMatchObject({ code: 'capability_unsupported' });
    });

    describe('through the engine', () => {
      let fresh: FreshDatabase;
      let engine: Engine;
      const caller = { org: 'org' };
      const instanceOf = ({ id, generation }: SandboxView): Instance => ({ sandboxId: id, generation });
      /** Containers without a sandbox. */
      const preCreated = async () => {
        const berths = join(world.dataDir, 'gvisor', 'berths');
        const names = await readdir(berths);
        return names.filter((name) => !existsSync(join(berths, name, 'owner')));
      };

      it('are made from an archive and from a snapshot, and are removed completely when they are deleted', async () => {
        fresh = await freshDatabase('sqlite');
        engine = engineOn(world, fresh);
        await engine.start({ rounds: false });
        const before = await layers();
        const archive = await archiveOf(gzipSync(root));
        const made = await engine.prepareTemplate(caller, { name: 'tiny', archive, services: [service] });
        await rm(archive);
        expect(made).toMatchObject({ state: 'ready', runtime: 'gvisor' });

        const sandbox = (await engine.create(caller, { template: 'tiny' })).sandbox;
        const { who } = await ask(instanceOf(sandbox));
        expect(await ask(instanceOf(sandbox))).toMatchObject({ who, count: 2 });
        const snapshot = (await engine.snapshot(caller, sandbox.id)).checkpoint;
        await engine.nameTemplate('org', { name: 'counted', from: snapshot.id });
        await engine.kill(caller, sandbox.id);
        await engine.deleteTemplate('org', 'tiny');
        await engine.reconcile();

        const ofOthers = await preCreated();
        const another = (await engine.create(caller, { template: 'counted' })).sandbox;
        expect(another.services).toMatchObject([service]);
        expect(await ask(instanceOf(another))).toEqual({ who, count: 3, place: 'template' });
        // A container for the next sandbox is created in advance, as for templates from archives.
        await expect
          .poll(async () => (await preCreated()).filter((name) => !ofOthers.includes(name)))
          .not.toEqual([]);
        await engine.kill(caller, another.id);
        await engine.deleteTemplate('org', 'counted');
        await engine.deleteCheckpoint('org', snapshot.id);
        await engine.reconcile();
        await engine.reconcile();
        await world.dispose();
        expect(await layers()).toEqual(before);
        await engine.stop();
        await fresh.dispose();
      });
    });
  },
);
