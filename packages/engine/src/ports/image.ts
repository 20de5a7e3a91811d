/** The port to container images: what a template needs of one, wherever the image comes from. */
import type { TemplateImage } from '@torpor/protocol';

export interface ImageLayer {
  /** The digest of the layer's tar, `sha256:…`. */
  readonly diffId: string;
  /** How many bytes are transferred. */
  readonly bytes: number;
  /**
   * The tar. The stream throws at its end when the bytes do not have the digest: nothing of it may be used before.
   * `received` is called with the number of bytes that were transferred so far.
   */
  read(signal: AbortSignal, received: (bytes: number) => void): AsyncIterable<Buffer>;
}

export interface Image {
  readonly about: TemplateImage;
  /** The lowest first. */
  readonly layers: readonly ImageLayer[];
}

export interface ImageSource {
  /** Reads what the image says of itself. Its layers are read later, and only those that are needed. */
  open(signal: AbortSignal): Promise<Image>;
}
