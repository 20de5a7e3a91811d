/**
 * The tar of a layer as a stream. The bytes are compared with the size and the digest of the layer as it is transferred, and
 * with the digest of the tar itself. A difference is known only at the end: the reader must read to the end, and must not use
 * what it read before the stream has ended without an error.
 */
import { createHash } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { unusable } from './unusable.ts';

export interface LayerDigests {
  /** Of the bytes as they are transferred. Null in an archive that names only the digest of the tar. */
  readonly transferred: { readonly digest: string; readonly size: number } | null;
  readonly diffId: string;
}

export function layerContent(
  transferred: AsyncIterable<Buffer>,
  digests: LayerDigests,
  received: (bytes: number) => void,
): AsyncIterable<Buffer> {
  return checkedTar(counted(checked(transferred, digests), received), digests.diffId);
}

async function* checked(source: AsyncIterable<Buffer>, digests: LayerDigests): AsyncGenerator<Buffer> {
  if (digests.transferred === null) return yield* source;
  const { digest, size } = digests.transferred;
  yield* checkedBytes(source, digest, size, `the layer ${short(digest)}`);
}

/** Throws at the end unless the bytes have this digest and this size. More bytes than that are not read. */
export async function* checkedBytes(
  source: AsyncIterable<Buffer>,
  digest: string,
  size: number,
  what: string,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    if (bytes > size) throw unusable(`${what} has more than its ${size} bytes`);
    hash.update(chunk);
    yield chunk;
  }
  if (bytes < size) throw unusable(`${what} ends after ${bytes} of ${size} bytes`);
  if (`sha256:${hash.digest('hex')}` !== digest) throw unusable(`${what} does not have its digest`);
}

async function* counted(
  source: AsyncIterable<Buffer>,
  received: (bytes: number) => void,
): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const chunk of source) {
    bytes += chunk.length;
    received(bytes);
    yield chunk;
  }
}

async function* checkedTar(source: AsyncIterable<Buffer>, diffId: string): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  for await (const chunk of unpacked(source, diffId)) {
    hash.update(chunk);
    yield chunk;
  }
  if (`sha256:${hash.digest('hex')}` !== diffId)
    throw unusable(`a layer is not the one with the digest ${short(diffId)} of its configuration`);
}

/** The first bytes tell how the layer is compressed: media types are often wrong. */
async function* unpacked(source: AsyncIterable<Buffer>, diffId: string): AsyncGenerator<Buffer> {
  const iterator = source[Symbol.asyncIterator]();
  const first = await iterator.next();
  if (first.done === true) return;
  const all = resumed(first.value, iterator);
  const decompress = decompressorFor(first.value);
  if (decompress === undefined) return yield* all;
  // The reader of the last stream gets the errors of both.
  const stream = pipeline(Readable.from(all, { objectMode: false }), decompress, () => {});
  try {
    for await (const chunk of stream) yield chunk as Buffer;
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    const isDamage = typeof code === 'string' && /^(Z_|ZSTD_)/.test(code);
    throw isDamage
      ? unusable(`the layer of ${short(diffId)} cannot be decompressed (${code})`, thrown)
      : thrown;
  } finally {
    stream.destroy();
  }
}

function decompressorFor(head: Buffer) {
  if (head[0] === 0x1f && head[1] === 0x8b) return createGunzip();
  return head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528 ? createZstdDecompress() : undefined;
}

async function* resumed(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  try {
    yield first;
    for (;;) {
      const next = await rest.next();
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    await rest.return?.();
  }
}

export function short(digest: string): string {
  return digest.slice(0, 'sha256:'.length + 12);
}
