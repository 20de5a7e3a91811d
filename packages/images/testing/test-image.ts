/** Container images for tests, made in memory. */
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { type TarEntry, tar } from '@torpor/host/testing';

export interface TestImage {
  readonly manifest: Buffer;
  readonly manifestDigest: string;
  readonly config: Buffer;
  readonly diffIds: readonly string[];
  /** As they are transferred, the lowest first. */
  readonly layers: readonly Buffer[];
  /** Everything that the manifest names, by digest. */
  readonly blobs: ReadonlyMap<string, Buffer>;
}

export interface TestImageOptions {
  readonly architecture?: string;
  /** The field `config` of the configuration. */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly compress?: (layer: Buffer) => Buffer;
}

const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch;
/** The platform of this machine. */
export const MACHINE = `linux/${ARCHITECTURE}`;

export const MANIFEST_TYPE = 'application/vnd.oci.image.manifest.v1+json';
export const INDEX_TYPE = 'application/vnd.oci.image.index.v1+json';

export function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** Each layer is a list of entries, or a finished tar. */
export function testImage(
  layers: readonly (readonly TarEntry[] | Buffer)[],
  options: TestImageOptions = {},
): TestImage {
  const { architecture = ARCHITECTURE, compress = gzipSync } = options;
  const tars = layers.map((layer) => (Buffer.isBuffer(layer) ? layer : tar(...layer)));
  const packed = tars.map((one) => compress(one));
  const diffIds = tars.map(digestOf);
  const config = jsonOf({
    os: 'linux',
    architecture,
    config: options.config ?? {},
    rootfs: { type: 'layers', diff_ids: diffIds },
    // Builders compare the history with the layers.
    history: tars.map((_, index) => ({ created_by: `layer ${index}` })),
  });
  const manifest = jsonOf({
    schemaVersion: 2,
    mediaType: MANIFEST_TYPE,
    config: descriptorOf(config, 'application/vnd.oci.image.config.v1+json'),
    layers: packed.map((layer) => descriptorOf(layer, 'application/vnd.oci.image.layer.v1.tar+gzip')),
  });
  const blobs = new Map([config, ...packed].map((blob) => [digestOf(blob), blob]));
  return { manifest, manifestDigest: digestOf(manifest), config, diffIds, layers: packed, blobs };
}

/** An index of images by platform. */
export function testIndex(images: Readonly<Record<string, TestImage>>): Buffer {
  return jsonOf({
    schemaVersion: 2,
    mediaType: INDEX_TYPE,
    manifests: Object.entries(images).map(([platform, { manifest }]) => {
      const [os, architecture] = platform.split('/');
      return { ...descriptorOf(manifest, MANIFEST_TYPE), platform: { os, architecture } };
    }),
  });
}

/** As `skopeo copy … oci-archive:FILE` writes it. */
export function ociArchive(image: TestImage): Buffer {
  const index = jsonOf({ schemaVersion: 2, manifests: [descriptorOf(image.manifest, MANIFEST_TYPE)] });
  const blobs = new Map([...image.blobs, [image.manifestDigest, image.manifest]]);
  return tar(
    { name: 'oci-layout', content: '{"imageLayoutVersion":"1.0.0"}' },
    ...[...blobs].map(([digest, content]) => ({ name: `blobs/${digest.replace(':', '/')}`, content })),
    { name: 'index.json', content: index },
  );
}

/** As `docker save` writes it: a layer that occurs twice is a link. */
export function dockerArchive(image: TestImage): Buffer {
  const config = `${digestOf(image.config).slice('sha256:'.length)}.json`;
  const paths = image.layers.map((_, index) => `layer${index}/layer.tar`);
  return tar(
    ...image.layers.map((content, index) => {
      const name = paths[index] ?? '';
      const first = image.layers.indexOf(content);
      return first === index ? { name, content } : { name, type: '2', target: `../${paths[first]}` };
    }),
    { name: config, content: image.config },
    { name: 'manifest.json', content: jsonOf([{ Config: config, RepoTags: ['app:1'], Layers: paths }]) },
  );
}

function descriptorOf(bytes: Buffer, mediaType: string) {
  return { mediaType, digest: digestOf(bytes), size: bytes.length };
}

function jsonOf(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}
