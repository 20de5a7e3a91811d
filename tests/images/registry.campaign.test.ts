/** `torpor template create --image` with real registries on a real server: images with and without faults. */
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import type { TarEntry } from '@torpor/host/testing';
import {
  digestOf,
  dockerArchive,
  INDEX_TYPE,
  ociArchive,
  REGISTRY_USER,
  startRegistry,
  type TestImage,
  type TestRegistry,
  testImage,
  testIndex,
  whyNoRegistry,
} from '@torpor/images/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { tinyRoot } from '../../packages/runtime-gvisor/testing/tiny-root.ts';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const why = (await whyNoGvisor()) ?? whyNoRegistry;
const PROGRAM = join(import.meta.dirname, '../../packages/cli/bin/torpor.mjs');
const SKOPEO = '/usr/bin/skopeo';
const INVALID = 10;
const NOT_FOUND = 12;
const PERMISSION = 13;

describe.skipIf(why !== null)(`torpor template create${why === null ? '' : ` (${why})`}`, () => {
  let server: TorporProcess;
  let registry: TestRegistry;
  let guarded: TestRegistry;
  let place: string;
  let root: Buffer;
  let app: TestImage;

  beforeAll(async () => {
    place = await mkdtemp('/var/tmp/torpor-registry-campaign-');
    [registry, guarded] = await Promise.all([startRegistry(), startRegistry({ credentials: true })]);
    // The server's docker login: the second registry is known under another name.
    const auth = Buffer.from(`${REGISTRY_USER.username}:${REGISTRY_USER.password}`).toString('base64');
    const known = guarded.name.replace('127.0.0.1', 'localhost');
    await mkdir(join(place, 'docker'));
    await writeFile(join(place, 'docker/config.json'), JSON.stringify({ auths: { [known]: { auth } } }));
    const env = { DOCKER_CONFIG: join(place, 'docker'), TORPOR_REGISTRY_NETWORKS: '127.0.0.1/32' };
    server = await startTorpor(join(place, 'data'), { TORPOR_LOG_LEVEL: 'error', ...env }, 'gvisor');
    root = await tinyRoot({ '/srv/note': 'from the image' });
    app = testImage([root], { config: { WorkingDir: '/srv' } });
    for (const each of [registry, guarded]) await each.push('team/app', '1', app);
  }, 300_000);
  afterAll(async () => {
    await server?.end();
    await registry?.stop();
    await guarded?.stop();
    await rm(place, { recursive: true });
  }, 120_000);

  /** Runs the command line as a user does. */
  async function torpor(args: readonly string[], input = '') {
    const env = { ...process.env, TORPOR_URL: server.url, TORPOR_API_KEY: server.apiKey, NO_COLOR: '1' };
    const child = spawn(process.execPath, [PROGRAM, ...args], { env });
    child.stdin.end(input);
    const [stdout, stderr, code] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      new Promise<number | null>((resolve) => child.on('exit', resolve)),
    ]);
    return { code, stdout, stderr };
  }
  const create = (flags: readonly string[], input = '') =>
    torpor(['template', 'create', 'app', ...flags], input);

  /** What the server has: templates, checkpoints, layers, and directories of sandboxes. */
  async function everything() {
    const data = join(place, 'data');
    const list = async (path: string) => (await readdir(join(data, path)).catch(() => [])).sort();
    return {
      templates: (await torpor(['template', 'ls'])).stdout.split('\n').length,
      checkpoints: await list('checkpoints'),
      layers: await list('checkpoints/layers'),
      records: await list('gvisor/image-layers'),
      uploads: await list('uploads'),
    };
  }

  async function expectUsable(flags: readonly string[], input = ''): Promise<void> {
    expect(await create(flags, input)).toMatchObject({ code: 0, stdout: 'app\n' });
    const { id } = await server.torpor.sandboxes.create({ template: 'app' });
    const { stdout } = await server.torpor.sandboxes.exec(id, 'read x < note || echo "$x in $PWD"');
    expect(stdout).toBe('from the image in /srv\n');
    await server.torpor.sandboxes.kill(id);
    expect((await torpor(['template', 'rm', 'app'])).code).toBe(0);
  }

  it('makes a template from a tag and from a digest, and records digest and platform', async () => {
    await expectUsable(['--image', `${registry.name}/team/app:1`]);
    await create(['--image', `${registry.name}/team/app@${app.manifestDigest}`]);
    const { image } = await server.torpor.templates.get('app');
    expect(image).toMatchObject({ digest: app.manifestDigest, platform: expect.stringMatching(/^linux\//) });
    await torpor(['template', 'rm', 'app']);
  });

  it('uses credentials of flags, and those of docker login on the server', async () => {
    const image = `${guarded.name}/team/app:1`;
    const before = await everything();
    const without = await create(['--image', image]);
    expect(without).toMatchObject({ code: PERMISSION, stderr: expect.stringContaining('needs credentials') });
    const user = ['--registry-user', REGISTRY_USER.username, '--registry-password-stdin'];
    const wrong = await create(['--image', image, ...user], 'wrong');
    expect(wrong).toMatchObject({
      code: PERMISSION,
      stderr: expect.stringContaining('does not accept the credentials'),
    });
    expect(await everything()).toEqual(before);
    await expectUsable(['--image', image, ...user], `${REGISTRY_USER.password}\n`);
    await expectUsable(['--image', image.replace('127.0.0.1', 'localhost')]);
  });

  it('makes templates from archives, also from those of skopeo', async () => {
    const [oci, docker] = [join(place, 'oci.tar'), join(place, 'docker.tar')];
    await writeFile(oci, ociArchive(app));
    await expectUsable(['--oci-archive', oci]);
    await writeFile(docker, dockerArchive(app));
    await expectUsable(['--docker-archive', docker]);
    if (!existsSync(SKOPEO)) return;
    const source = `docker://${registry.name}/team/app:1`;
    for (const format of ['oci', 'docker'] as const) {
      const path = join(place, `skopeo-${format}.tar`);
      const copy = ['copy', '--insecure-policy', '--src-tls-verify=false', source];
      await promisify(execFile)(SKOPEO, [...copy, `${format}-archive:${path}:app:1`]);
      await expectUsable([`--${format}-archive`, path]);
    }
  });

  it('says what is wrong with an image, and leaves nothing half made', async () => {
    const foreign = testImage([root], { architecture: 's390x' });
    const big: TarEntry = { name: 'big', content: 'x'.repeat(100_000) };
    const link: TarEntry = { name: 'out', type: '2', target: place };
    const faults: readonly (readonly [repository: string, image: TestImage, words: string])[] = [
      ['parent', testImage([root, [{ name: '../outside', content: 'x' }]]), 'a path with ".."'],
      ['absolute', testImage([root, [{ name: '/outside', content: 'x' }]]), 'an absolute path'],
      ['link', testImage([root, [link], [{ name: 'out/victim', content: 'x' }]]), 'not a directory'],
      ['hard-link', testImage([root, [link, { name: 'a', type: '1', target: 'out/x' }]]), 'a hard link'],
      ['device', testImage([root, [{ name: 'disk', type: '4' }]]), 'a device'],
      ['platform', foreign, 'linux/s390x'],
      ['truncated', testImage([root, [big, { name: 'one', content: '1' }]]), 'ends after 60 of'],
      ['other', testImage([root, [big, { name: 'two', content: '2' }]]), 'does not have its digest'],
    ];
    const before = await everything();
    for (const [repository, image, words] of faults) {
      await registry.push(repository, '1', image);
      const layer = image.layers.at(-1) ?? Buffer.alloc(0);
      if (repository === 'truncated') await registry.replaceBlob(digestOf(layer), layer.subarray(0, 60));
      if (repository === 'other') await registry.replaceBlob(digestOf(layer), Buffer.alloc(layer.length));
      const { code, stderr } = await create(['--image', `${registry.name}/${repository}:1`]);
      expect([repository, code, stderr]).toEqual([repository, INVALID, expect.stringContaining(words)]);
    }
    await registry.pushManifest('platform', 'index', testIndex({ 'linux/s390x': foreign }), INDEX_TYPE);
    for (const [name, code, words] of [
      ['platform:index', INVALID, 'linux/s390x'],
      [`team/app@sha256:${'0'.repeat(64)}`, NOT_FOUND, 'has no image'],
      ['team/app:none', NOT_FOUND, 'has no image'],
      ['team/app@sha256:abc', INVALID, 'sha256: and 64 hex digits'],
    ] as const)
      expect([name, await create(['--image', `${registry.name}/${name}`])]).toMatchObject([
        name,
        { code, stderr: expect.stringContaining(words) },
      ]);
    await writeFile(join(place, 'cut.tar'), ociArchive(app).subarray(0, 2_000));
    const cut = await create(['--oci-archive', join(place, 'cut.tar')]);
    expect(cut.code).toBe(INVALID);
    expect(existsSync(join(place, 'victim'))).toBe(false);
    // Layers that nothing needs go with the next round, and the record of one with the next image.
    const known = new Set(before.records);
    const left = async () => ({
      ...(await everything()),
      records: (await everything()).records.filter((record) => !known.has(record)),
    });
    await expect.poll(left, { timeout: 180_000, interval: 1_000 }).toEqual({ ...before, records: [] });
  });
});
