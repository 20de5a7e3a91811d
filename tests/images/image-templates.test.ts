/** Container images as templates: from a real registry into sandboxes of gVisor. */
import { randomBytes } from 'node:crypto';
import { lstat, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Engine, type Instance, systemClock } from '@torpor/engine';
import { type FreshDatabase, failureOf, freshDatabase } from '@torpor/engine/testing';
import type { TarEntry } from '@torpor/host/testing';
import { Images } from '@torpor/images';
import {
  digestOf,
  dockerArchive,
  ociArchive,
  startRegistry,
  type TestRegistry,
  testImage,
  whyNoRegistry,
} from '@torpor/images/testing';
import type { SandboxView } from '@torpor/protocol';
import { engineOn } from '@torpor/runtime-shared/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type GvisorWorld,
  makeGvisorWorld,
  whyNoGvisor,
} from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { tinyRoot } from '../../packages/runtime-gvisor/testing/tiny-root.ts';

const why = (await whyNoGvisor()) ?? whyNoRegistry;
const PORT = 3000;

/** Answers with a number of requests that is kept in memory only. */
const COUNTER = `
let count = 0;
require('node:http').createServer((_, response) => {
  response.end(JSON.stringify({ count: ++count, cwd: process.cwd(), uid: process.getuid(), level: process.env.LEVEL }));
}).listen(${PORT}, '127.0.0.1');
`;

/** Resets PATH, as the one of Debian does. */
const PROFILE = 'PATH=/reset\nfor one in /etc/profile.d/*.sh; do . "$one"; done\n';

/** Prints what a command without user and directory gets. */
const WHO =
  'while read key uid rest; do [ "$key" = Uid: ] && echo "$uid $PWD $LEVEL $PATH"; done < /proc/self/status';

describe.skipIf(why !== null)(
  `templates from images${why === null ? '' : ` (${why})`}`,
  { timeout: 120_000 },
  () => {
    let world: GvisorWorld;
    let registry: TestRegistry;
    let fresh: FreshDatabase;
    let engine: Engine;
    let root: Buffer;
    const caller = { org: 'org' };
    const images = new Images({ allowed: ['127.0.0.1/32'], clock: systemClock, dockerConfig: '/nowhere' });

    beforeAll(async () => {
      world = await makeGvisorWorld({ hostResourcePoolSize: 0 });
      registry = await startRegistry();
      fresh = await freshDatabase('sqlite');
      engine = engineOn(world, fresh);
      await engine.start({ rounds: false });
      // Large enough to be shared between images.
      root = await tinyRoot({
        '/etc/profile': PROFILE,
        '/old/file': 'below',
        '/etc/big': randomBytes(4_100_000).toString('latin1'),
      });
    }, 120_000);
    afterAll(async () => {
      await engine?.stop();
      await fresh?.dispose();
      await registry?.stop();
      await world?.close();
    }, 60_000);

    const instanceOf = ({ id, generation }: SandboxView): Instance => ({ sandboxId: id, generation });
    const counter = async (sandbox: SandboxView) => JSON.parse(await world.get(instanceOf(sandbox), PORT));
    const layersPath = () => join(world.dataDir, 'checkpoints', 'layers');
    const layers = async () => (await readdir(layersPath())).sort();
    const fromRegistry = (name: string, repository: string, extra = {}) => {
      const image = images.inRegistry(`${registry.name}/${repository}`, { mayUseServerCredentials: false });
      return engine.prepareTemplate(caller, { name, image, ...extra });
    };
    async function fromArchive(name: string, format: 'oci' | 'docker', bytes: Buffer) {
      const path = join(world.dataDir, 'archive');
      await writeFile(path, bytes);
      return engine.prepareTemplate(caller, { name, image: images.inArchive(path, format) });
    }
    /** What a command gets that names neither user nor directory. */
    async function who(sandbox: SandboxView, ...flags: string[]): Promise<string> {
      const agent = await world.agent(instanceOf(sandbox));
      let output = '';
      for await (const { event } of agent.process.start({
        process: { cmd: '/bin/sh', args: [...flags, '-c', WHO] },
      }))
        if (event?.event.case === 'data')
          output += Buffer.from(event.event.value.output.value ?? []).toString();
      return output.trim();
    }

    it('have the files, environment, directory, user and entrypoint of the image, awake and asleep', async () => {
      const before = await layers();
      const node = await world.node();
      const app: TarEntry[] = [
        { name: 'srv/counter.cjs', content: COUNTER },
        { name: 'srv/owned', content: 'x', uid: 1234, gid: 4321, mode: 0o640 },
        { name: 'old/.wh.file' },
      ];
      const config = {
        Env: ['LEVEL=one', 'PATH=/opt/app:/bin'],
        WorkingDir: '/srv',
        User: '1234:0',
        Entrypoint: ['/bin/sh', '-c'],
        Cmd: [`exec ${node} /srv/counter.cjs`],
        ExposedPorts: { [`${PORT}/tcp`]: {} },
      };
      const image = testImage([root, app], { config });
      await registry.push('app', '1', image);
      const made = await fromRegistry('app', 'app:1', { entrypoint: true });
      expect(made).toMatchObject({
        state: 'ready',
        root: { kind: 'own', digest: image.manifestDigest.slice('sha256:'.length) },
        image: { reference: `${registry.name}/app:1`, digest: image.manifestDigest, ports: [PORT] },
        services: [{ name: 'start', port: PORT }],
      });

      let { sandbox } = await engine.create(caller, { template: 'app' });
      const expected = '1234 /srv one /opt/app:/bin';
      expect(await who(sandbox)).toBe(expected);
      // A login shell has the PATH of the image too, behind Torpor's programs.
      expect(await who(sandbox, '-l')).toBe('1234 /srv one /.torpor/bin:/opt/app:/bin');
      expect(await counter(sandbox)).toEqual({ count: 1, cwd: '/srv', uid: 1234, level: 'one' });
      // The file of the layer below is hidden, its directory is not, and the owner of a file is kept.
      const facts = '[ ! -e /old/file ] && [ -d /old ] && [ -O /srv/owned ] && [ ! -G /srv/owned ]';
      expect(await world.run(instanceOf(sandbox), facts, 'image-user')).toMatchObject({ exitCode: 0 });
      await engine.pause(caller, sandbox.id);
      ({ sandbox } = await engine.resume(caller, sandbox.id));
      expect(await counter(sandbox)).toMatchObject({ count: 2 });
      const { forks } = await engine.fork(caller, sandbox.id, {});
      const [fork] = forks;
      if (fork === undefined || !('sandbox' in fork)) throw new Error('There is no fork.');
      expect(await counter(fork.sandbox)).toMatchObject({ count: 3 });
      expect(await who(fork.sandbox)).toBe(expected);
      const snapshot = (await engine.snapshot(caller, sandbox.id)).checkpoint;
      const copy = (await engine.create(caller, { from: snapshot.id })).sandbox;
      expect(await who(copy)).toMatch(/^1234 \/srv /);
      for (const { id } of [sandbox, fork.sandbox, copy]) await engine.kill(caller, id);
      await engine.deleteCheckpoint('org', snapshot.id);
      await engine.deleteTemplate('org', 'app');
      await engine.reconcile();
      await engine.reconcile();
      await world.dispose();
      expect(await layers()).toEqual(before);
    });

    it('share the layers that their images have in common, also with archives', async () => {
      const before = await layers();
      const note = (text: string): TarEntry[] => [{ name: 'etc/note', content: text }];
      await fromArchive('one', 'oci', ociArchive(testImage([root, note('one')])));
      const first = await layers();
      // The upper layer of the template, the layer that is shared, the layer above it, and the pages of the memory.
      expect(first.length - before.length).toBe(4);
      const two = testImage([root, note('two')], { compress: (layer) => layer });
      const [shared = Buffer.alloc(0), own = Buffer.alloc(0)] = two.layers;
      // The shared layer is not read again: these bytes are not those of the image.
      const unread = { ...two, layers: [Buffer.alloc(shared.length), own] };
      await fromArchive('two', 'docker', dockerArchive(unread));
      expect((await layers()).length - first.length).toBe(3);
      const big = [];
      for (const layer of await layers()) {
        const found = await lstat(join(layersPath(), layer, 'fs/etc/big')).catch(() => undefined);
        if (found !== undefined) big.push(found.ino);
      }
      expect(big).toHaveLength(3);
      expect(new Set(big).size).toBe(1);

      // The second template keeps what it needs of the first one.
      await engine.deleteTemplate('org', 'one');
      await engine.reconcile();
      await expect.poll(async () => (await layers()).length - before.length).toBe(4);
      const { sandbox } = await engine.create(caller, { template: 'two' });
      expect((await world.run(instanceOf(sandbox), 'read x < /etc/note || echo $x', 'root')).output).toBe(
        'two\n',
      );
      expect(await who(sandbox)).toMatch(/^0 \/ /);
      await engine.kill(caller, sandbox.id);
      await engine.deleteTemplate('org', 'two');
      await engine.reconcile();
      await world.dispose();
      await expect.poll(layers).toEqual(before);
    });

    it('are refused with the reason when the image is at fault, and leave nothing', async () => {
      const records = () => readdir(join(world.dataDir, 'gvisor', 'image-layers')).catch(() => []);
      await engine.reconcile();
      const before = { layers: await layers(), checkpoints: await stored() };
      const out: TarEntry = { name: 'out', type: '2', target: world.dataDir };
      const cut = testImage([root]);
      const other = testImage([root, [{ name: 'other', content: 'x' }]]);
      const cases: readonly (readonly [string, ReturnType<typeof testImage>, string])[] = [
        ['outside', testImage([root, [{ name: '../outside', content: 'x' }]]), 'a path with ".."'],
        ['absolute', testImage([[{ name: '/etc/passwd', content: 'x' }]]), 'an absolute path'],
        ['link', testImage([[out], [{ name: 'out/victim', content: 'x' }]]), 'not a directory'],
        ['hard-link', testImage([[out, { name: 'a', type: '1', target: 'out/secret' }]]), 'a hard link'],
        ['device', testImage([root, [{ name: 'disk', type: '4' }]]), 'a device'],
        ['no-tar', testImage([Buffer.from('not a tar at all')]), 'In layer 1 of 1'],
        ['nothing', testImage([]), 'no layers'],
        ['user', testImage([root], { config: { User: 'nobody-here' } }), 'nobody-here'],
        ['foreign', testImage([root], { architecture: 's390x' }), 's390x'],
        ['other', other, 'does not have its digest'],
        // The last one: its layer is that of others too.
        ['cut', cut, 'ends after 1000 of'],
      ];
      for (const [name, image, words] of cases) {
        await registry.push(name, '1', image);
        if (name === 'cut') {
          const [layer = Buffer.alloc(0)] = image.layers;
          await registry.replaceBlob(digestOf(layer), layer.subarray(0, 1000));
        }
        if (name === 'other') {
          const layer = image.layers.at(-1) ?? Buffer.alloc(0);
          await registry.replaceBlob(digestOf(layer), Buffer.alloc(layer.length));
        }
        const failure = await failureOf(fromRegistry(name, `${name}:1`));
        expect([name, failure.code, failure.message]).toEqual([
          name,
          'invalid_request',
          expect.stringContaining(words),
        ]);
        expect(failure.message).not.toContain(world.dataDir);
      }
      expect(await failureOf(fromRegistry('missing', 'missing:1'))).toMatchObject({ code: 'not_found' });
      expect((await engine.templates('org')).map(({ name }) => name)).toEqual(['base']);
      await engine.reconcile();
      expect({ layers: await layers(), checkpoints: await stored() }).toEqual(before);
      expect(await records()).toEqual([]);
      expect(await readdir(join(world.dataDir, 'gvisor', 'berths'))).toEqual([]);
    });

    const stored = async () =>
      (await readdir(join(world.dataDir, 'checkpoints'), { recursive: false })).sort();
  },
);
