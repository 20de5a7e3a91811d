import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { systemClock } from '@torpor/engine';
import { failureOf, unhurried } from '@torpor/engine/testing';
import { tar } from '@torpor/host/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { digestOf, dockerArchive, MACHINE, ociArchive, testImage } from '../testing/test-image.ts';
import { Images } from './image-source.ts';

const layer = [{ name: 'etc/one', content: 'one' }];
const image = testImage([layer, [{ name: 'etc/two', content: 'two' }]], { config: { WorkingDir: '/srv' } });

describe('an archive of an image', () => {
  let directory: string;
  const images = new Images({ allowed: [], clock: systemClock });
  const open = async (bytes: Buffer, format: 'oci' | 'docker') => {
    const path = join(directory, 'archive');
    await writeFile(path, bytes);
    const found = await images.inArchive(path, format).open(unhurried);
    const tars: Buffer[] = [];
    for (const one of found.layers) tars.push(await buffer(one.read(unhurried, () => {})));
    return { about: found.about, diffIds: tars.map(digestOf) };
  };
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-archives-'));
  });
  afterAll(() => rm(directory, { recursive: true }));

  it('is read as an OCI layout', async () => {
    const found = await open(ociArchive(image), 'oci');
    expect(found.about).toMatchObject({ reference: null, digest: image.manifestDigest, workdir: '/srv' });
    expect(found.diffIds).toEqual(image.diffIds);
  });

  it('is read as docker save writes it, with layers that are links', async () => {
    const twice = testImage([layer, layer], { compress: (bytes) => bytes });
    const [first = Buffer.alloc(0)] = twice.layers;
    const found = await open(dockerArchive({ ...twice, layers: [first, first] }), 'docker');
    expect(found.about.digest).toBe(digestOf(twice.config));
    expect(found.diffIds).toEqual(twice.diffIds);
  });

  it('may have layers that are compressed with zstd', async () => {
    const packed = testImage([layer], { compress: (bytes) => zstdCompressSync(bytes) });
    expect((await open(ociArchive(packed), 'oci')).diffIds).toEqual(packed.diffIds);
  });

  it('is refused when it is something else, damaged or compressed', async () => {
    const [first = Buffer.alloc(0)] = image.layers;
    const damaged = {
      ...image,
      blobs: new Map([...image.blobs, [digestOf(first), Buffer.alloc(first.length)]]),
    };
    const unlike = { ...image, layers: [first, first] };
    for (const [bytes, format, words] of [
      [tar({ name: 'etc/passwd' }), 'oci', 'not an OCI archive'],
      [tar({ name: 'etc/passwd' }), 'docker', 'not an archive of docker save'],
      [ociArchive({ ...image, blobs: new Map() }), 'oci', 'has no blob'],
      [ociArchive(damaged), 'oci', 'does not have its digest'],
      [dockerArchive(unlike), 'docker', 'of its configuration'],
      [tar({ name: 'index.json', content: '{"manifests": 7}' }), 'oci', 'invalid field'],
      [tar({ name: 'index.json', content: '{"a": ' }), 'oci', 'is not JSON'],
      [gzipSync(ociArchive(image)), 'oci', 'is compressed'],
      [ociArchive(testImage([layer], { architecture: 's390x' })), 'oci', `not for ${MACHINE}`],
    ] as const) {
      const failure = await failureOf(open(bytes, format));
      expect(failure.code).toBe('invalid_request');
      expect(failure.message).toContain(words);
    }
  });
});
