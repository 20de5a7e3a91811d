/** From the name of an image to its layers: index, manifest, configuration. */
import { buffer } from 'node:stream/consumers';
import type { Image, ImageLayer } from '@torpor/engine';
import {
  configSchema,
  type Descriptor,
  indexSchema,
  isIndex,
  manifestSchema,
  parseDocument,
  refuseForeign,
  requireJsonObject,
} from './documents.ts';
import { configuredImage } from './image-config.ts';
import { checkedBytes, layerContent, short } from './layer-content.ts';
import { isPlatform, type Platform, platformText } from './platform.ts';
import { unusable } from './unusable.ts';

/** Where the parts of an image are. The bytes are not checked there. */
export interface ImageParts {
  /** The document that the caller's name of the image stands for. `digest` is null when the name has none. */
  root(signal: AbortSignal): Promise<{ readonly bytes: Buffer; readonly digest: string }>;
  manifest(descriptor: Descriptor, signal: AbortSignal): Promise<Buffer>;
  blob(descriptor: Descriptor, signal: AbortSignal): AsyncIterable<Buffer>;
}

/** More than any real manifest or configuration has. */
export const MAX_DOCUMENT_BYTES = 4 * 1024 * 1024;

/** An index may name another index; real ones do so once. */
const MAX_INDEXES = 4;

export async function readImage(
  parts: ImageParts,
  about: { readonly reference: string | null; readonly platform: Platform },
  signal: AbortSignal,
): Promise<Image> {
  const { digest, bytes } = await manifestFor(parts, about.platform, signal);
  const manifest = parseDocument(bytes, manifestSchema, 'its manifest');
  const configBytes = await documentOf(
    parts.blob(manifest.config, signal),
    manifest.config,
    'its configuration',
  );
  const config = parseDocument(configBytes, configSchema, 'its configuration');
  if (!isPlatform(config, about.platform)) throw otherPlatform([config], about.platform);
  const { diff_ids: diffIds } = config.rootfs;
  if (diffIds.length !== manifest.layers.length)
    throw unusable(
      `its manifest has ${manifest.layers.length} layers and its configuration ${diffIds.length}`,
    );
  const layers = manifest.layers.map((descriptor, index): ImageLayer => {
    refuseForeign(descriptor);
    const diffId = diffIds[index] ?? '';
    const { digest: transferred, size } = descriptor;
    return {
      diffId,
      bytes: size,
      read: (layerSignal, received) =>
        layerContent(
          parts.blob(descriptor, layerSignal),
          { transferred: { digest: transferred, size }, diffId },
          received,
        ),
    };
  });
  return configuredImage(config, { reference: about.reference, digest }, layers);
}

async function manifestFor(
  parts: ImageParts,
  platform: Platform,
  signal: AbortSignal,
): Promise<{ readonly digest: string; readonly bytes: Buffer }> {
  let found = await parts.root(signal);
  for (let indexes = 0; indexes < MAX_INDEXES; indexes += 1) {
    if (!isIndex(requireJsonObject(found.bytes, 'its manifest'))) return found;
    const { manifests } = parseDocument(found.bytes, indexSchema, 'its index');
    // An index without platforms is usual in archives with one image.
    const chosen =
      manifests.find((one) => one.platform !== undefined && isPlatform(one.platform, platform)) ??
      (manifests.length === 1 && manifests[0]?.platform === undefined ? manifests[0] : undefined);
    if (chosen === undefined)
      throw otherPlatform(
        manifests.flatMap((one) => one.platform ?? []),
        platform,
      );
    found = { digest: chosen.digest, bytes: await parts.manifest(chosen, signal) };
  }
  throw unusable('its indexes name one another too often');
}

function otherPlatform(found: readonly Platform[], wanted: Platform) {
  const names = found.map(platformText).filter((name) => name !== 'unknown/unknown');
  return unusable(`it is not for ${platformText(wanted)} but for ${names.join(', ') || 'no known platform'}`);
}

/** Reads a whole document of a known digest. */
export async function documentOf(
  source: AsyncIterable<Buffer>,
  { digest, size }: Pick<Descriptor, 'digest' | 'size'>,
  what: string,
): Promise<Buffer> {
  if (size > MAX_DOCUMENT_BYTES) throw unusable(`${what} ${short(digest)} has ${size} bytes`);
  return buffer(checkedBytes(source, digest, size, what));
}
