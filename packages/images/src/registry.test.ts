import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type Image, systemClock } from '@torpor/engine';
import { failureOf, unhurried } from '@torpor/engine/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { REGISTRY_USER, startRegistry, type TestRegistry, whyNoRegistry } from '../testing/registry.ts';
import { digestOf, INDEX_TYPE, MACHINE, testImage, testIndex } from '../testing/test-image.ts';
import { type FromRegistry, Images } from './image-source.ts';

const image = testImage([[{ name: 'etc/one', content: 'first' }], [{ name: 'etc/two', content: 'second' }]], {
  config: {
    Env: ['PATH=/opt/bin:/bin', 'LEVEL=1', 'not valid=left out'],
    WorkingDir: '/srv',
    User: '1000:1000',
    Entrypoint: ['/bin/serve'],
    Cmd: ['--port', '3000'],
    ExposedPorts: { '3000/tcp': {}, '53/udp': {} },
  },
});
const foreign = testImage([[{ name: 'etc/one', content: 'of another machine' }]], { architecture: 's390x' });

/** Reads the layers to their ends, as a runtime does. */
async function read({ layers }: Image): Promise<Buffer[]> {
  const tars: Buffer[] = [];
  for (const layer of layers) tars.push(await buffer(layer.read(unhurried, () => {})));
  return tars;
}

describe.skipIf(whyNoRegistry !== null)(
  `an image in a registry${whyNoRegistry === null ? '' : ` (${whyNoRegistry})`}`,
  () => {
    let registry: TestRegistry;
    let guarded: TestRegistry;
    let directory: string;
    const allowed = { allowed: ['127.0.0.0/8'], clock: systemClock };
    const open = (
      reference: string,
      options: Partial<FromRegistry> = {},
      images = new Images({ ...allowed, dockerConfig: '/nowhere' }),
    ) => images.inRegistry(reference, { mayUseServerCredentials: false, ...options }).open(unhurried);

    beforeAll(async () => {
      directory = await mkdtemp(join(tmpdir(), 'torpor-images-'));
      [registry, guarded] = await Promise.all([startRegistry(), startRegistry({ credentials: true })]);
      await registry.push('team/app', '1', image);
      await guarded.push('team/app', '1', image);
      await registry.push('team/app', 'foreign', foreign);
      await registry.pushManifest(
        'team/app',
        'both',
        testIndex({ 'linux/s390x': foreign, [MACHINE]: image }),
        INDEX_TYPE,
      );
      await registry.pushManifest(
        'team/app',
        'only-foreign',
        testIndex({ 'linux/s390x': foreign }),
        INDEX_TYPE,
      );
    });
    afterAll(async () => {
      await Promise.all([registry?.stop(), guarded?.stop()]);
      await rm(directory, { recursive: true });
    });

    it('is read by its tag, with its configuration and its layers', async () => {
      const found = await open(`${registry.name}/team/app:1`);
      expect(found.about).toEqual({
        reference: `${registry.name}/team/app:1`,
        digest: image.manifestDigest,
        platform: MACHINE,
        user: '1000:1000',
        workdir: '/srv',
        env: { PATH: '/opt/bin:/bin', LEVEL: '1' },
        entrypoint: ['/bin/serve'],
        cmd: ['--port', '3000'],
        ports: [3000],
      });
      expect((await read(found)).map(digestOf)).toEqual(image.diffIds);
    });

    it('is read by its digest', async () => {
      const found = await open(`${registry.name}/team/app@${image.manifestDigest}`);
      expect(found.about.digest).toBe(image.manifestDigest);
    });

    it('is chosen for the platform of this machine', async () => {
      const found = await open(`${registry.name}/team/app:both`);
      expect(found.about).toMatchObject({ digest: image.manifestDigest, platform: MACHINE });
    });

    it('is refused when it is not for this machine', async () => {
      for (const tag of ['only-foreign', 'foreign']) {
        const failure = await failureOf(open(`${registry.name}/team/app:${tag}`));
        expect(failure).toMatchObject({ code: 'invalid_request' });
        expect(failure.message).toContain(`not for ${MACHINE} but for linux/s390x`);
      }
    });

    it('is not found under another tag, digest or name', async () => {
      for (const name of ['team/app:2', `team/app@sha256:${'0'.repeat(64)}`, 'team/other:1'])
        expect(await failureOf(open(`${registry.name}/${name}`))).toMatchObject({ code: 'not_found' });
    });

    it('needs the credentials that the registry asks for', async () => {
      const reference = `${guarded.name}/team/app:1`;
      expect(await failureOf(open(reference))).toMatchObject({
        code: 'forbidden',
        message: expect.stringContaining('needs credentials'),
      });
      const wrong = { username: 'ada', password: 'not this one' };
      const failure = await failureOf(open(reference, { credentials: wrong }));
      expect(failure).toMatchObject({ code: 'forbidden' });
      expect(JSON.stringify(failure)).not.toContain(wrong.password);
      expect((await read(await open(reference, { credentials: REGISTRY_USER }))).map(digestOf)).toEqual(
        image.diffIds,
      );
    });

    it("is read with the server's own credentials only where that is allowed", async () => {
      const dockerConfig = join(directory, 'config.json');
      const auth = Buffer.from(`${REGISTRY_USER.username}:${REGISTRY_USER.password}`).toString('base64');
      await writeFile(dockerConfig, JSON.stringify({ auths: { [guarded.name]: { auth } } }));
      const images = new Images({ ...allowed, dockerConfig });
      const reference = `${guarded.name}/team/app:1`;
      expect(await failureOf(open(reference, {}, images))).toMatchObject({ code: 'forbidden' });
      const found = await open(reference, { mayUseServerCredentials: true }, images);
      expect(found.about.digest).toBe(image.manifestDigest);
    });

    it('is refused when a layer of it is cut off, or is another one', async () => {
      const broken = testImage([[{ name: 'etc/broken', content: 'x'.repeat(10_000) }]]);
      await registry.push('team/broken', '1', broken);
      const [layer = Buffer.alloc(0)] = broken.layers;
      const found = await open(`${registry.name}/team/broken:1`);
      await registry.replaceBlob(digestOf(layer), layer.subarray(0, 50));
      expect(await failureOf(read(found))).toMatchObject({
        code: 'invalid_request',
        message: expect.stringContaining(`ends after 50 of ${layer.length} bytes`),
      });
      await registry.replaceBlob(digestOf(layer), Buffer.alloc(layer.length));
      expect(await failureOf(read(found))).toMatchObject({
        code: 'invalid_request',
        message: expect.stringContaining('does not have its digest'),
      });
    });

    it('is refused when its layer is not the one of its configuration', async () => {
      const other = testImage([[{ name: 'etc/one', content: 'another' }]]);
      const config = JSON.parse(image.config.toString());
      config.rootfs.diff_ids = [image.diffIds[0]];
      const mixed = testImage([[{ name: 'etc/one', content: 'another' }]]);
      const bytes = Buffer.from(JSON.stringify(config));
      const manifest = JSON.parse(mixed.manifest.toString());
      manifest.config = { ...manifest.config, digest: digestOf(bytes), size: bytes.length };
      const blobs = new Map([...other.blobs, [digestOf(bytes), bytes]]);
      await registry.push('team/mixed', '1', {
        ...mixed,
        blobs,
        manifest: Buffer.from(JSON.stringify(manifest)),
      });
      expect(await failureOf(open(`${registry.name}/team/mixed:1`).then(read))).toMatchObject({
        code: 'invalid_request',
        message: expect.stringContaining('of its configuration'),
      });
    });

    it('is not fetched from an address of this machine unless the operator allows it', async () => {
      const images = new Images({ allowed: [], clock: systemClock, dockerConfig: '/nowhere' });
      for (const host of [registry.name, registry.name.replace('127.0.0.1', 'localhost')])
        expect(await failureOf(open(`${host}/team/app:1`, {}, images))).toMatchObject({ code: 'forbidden' });
    });
  },
);
