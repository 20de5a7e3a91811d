/** An image in the archive of an OCI layout, as `skopeo copy … oci-archive:FILE` writes it. */
import { buffer } from 'node:stream/consumers';
import { type Descriptor, indexSchema, parseDocument } from './documents.ts';
import { documentOf, type ImageParts, MAX_DOCUMENT_BYTES } from './read-image.ts';
import type { TarIndex } from './tar-index.ts';
import { unusable } from './unusable.ts';

export class OciArchive implements ImageParts {
  readonly #archive: TarIndex;

  constructor(archive: TarIndex) {
    this.#archive = archive;
  }

  async root() {
    const found = this.#archive.find('index.json');
    if (found === undefined) throw unusable('its archive has no index.json, so it is not an OCI archive');
    if (found.size > MAX_DOCUMENT_BYTES) throw unusable('its index.json is too large');
    // No digest names this file; the digests in it name everything else.
    const bytes = await buffer(found.read());
    parseDocument(bytes, indexSchema, 'its index.json');
    return { bytes, digest: '' };
  }

  manifest(descriptor: Descriptor): Promise<Buffer> {
    return documentOf(this.blob(descriptor), descriptor, 'its manifest');
  }

  blob({ digest }: Descriptor): AsyncIterable<Buffer> {
    const found = this.#archive.find(`blobs/${digest.replace(':', '/')}`);
    if (found === undefined) throw unusable(`its archive has no blob ${digest}`);
    return found.read();
  }
}
