/** An image in the archive that `docker save` writes. */
import { createHash } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import type { Image, ImageLayer } from '@torpor/engine';
import { configSchema, dockerManifestSchema, parseDocument } from './documents.ts';
import { configuredImage } from './image-config.ts';
import { layerContent } from './layer-content.ts';
import { isPlatform, type Platform, platformText } from './platform.ts';
import { MAX_DOCUMENT_BYTES } from './read-image.ts';
import type { TarIndex } from './tar-index.ts';
import { unusable } from './unusable.ts';

/** The digest of the image is that of its configuration, which Docker shows as the id of the image. */
export async function readDockerArchive(archive: TarIndex, platform: Platform): Promise<Image> {
  const images = parseDocument(
    await documentAt(archive, 'manifest.json'),
    dockerManifestSchema,
    'its manifest.json',
  );
  const [image] = images;
  if (image === undefined || images.length > 1)
    throw unusable(`its archive has ${images.length} images, and a template is made from one`);
  const bytes = await documentAt(archive, image.Config);
  const config = parseDocument(bytes, configSchema, 'its configuration');
  if (!isPlatform(config, platform))
    throw unusable(`it is not for ${platformText(platform)} but for ${platformText(config)}`);
  const { diff_ids: diffIds } = config.rootfs;
  if (diffIds.length !== image.Layers.length)
    throw unusable(`its archive has ${image.Layers.length} layers and its configuration ${diffIds.length}`);
  const layers = image.Layers.map((path, index): ImageLayer => {
    const found = archive.find(path);
    if (found === undefined) throw unusable(`its archive has no layer ${path}`);
    const diffId = diffIds[index] ?? '';
    return {
      diffId,
      bytes: found.size,
      read: (_, received) => layerContent(found.read(), { transferred: null, diffId }, received),
    };
  });
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  return configuredImage(config, { reference: null, digest }, layers);
}

async function documentAt(archive: TarIndex, path: string): Promise<Buffer> {
  const found = archive.find(path);
  if (found === undefined)
    throw unusable(`its archive has no ${path}, so it is not an archive of docker save`);
  if (found.size > MAX_DOCUMENT_BYTES) throw unusable(`${path} in its archive is too large`);
  return buffer(found.read());
}
