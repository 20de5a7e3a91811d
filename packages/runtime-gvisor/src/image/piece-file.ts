/**
 * Compressed files of a memory image. The content is cut into pieces, and each piece is compressed by itself, so that all cores
 * can pack and unpack: the pieces lie one after the other, each a whole zstd frame with its checksum (`zstd -d` reads the file).
 */
import { constants, readSync, writeSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { createZstdCompress, constants as zlib, zstdDecompress } from 'node:zlib';
import { forEachBounded } from '@torpor/host';
import { BufferPool, freeNow } from './buffer-pool.ts';

/** Larger pieces compress hardly better, and a small image would not keep all cores busy. */
export const PIECE_BYTES = 2 * 1024 * 1024;
/**
 * Each processor compresses a piece, and another piece is read or written meanwhile. More pieces at once would take memory and
 * not be ready sooner. The limit leaves most threads of Node's pool to other work with files (`bin/torpor.mjs` of the CLI sets their number).
 */
const AT_ONCE = Math.min(4, availableParallelism() + 1);
/** An incompressible piece grows by less than this. */
const ROOM_BYTES = 64 * 1024;
/** Room for a piece in either form. */
const MAX_PIECE_BYTES = PIECE_BYTES + ROOM_BYTES;
/** Shared by all images, so that many sandboxes that pause at once take no more memory than one. */
const buffers = new BufferPool(AT_ONCE, MAX_PIECE_BYTES);
const { O_RDONLY, O_NOFOLLOW, O_WRONLY, O_CREAT, O_EXCL } = constants;
const NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;

const inflate = promisify(zstdDecompress);
/** On real memory images: 7 % more bytes than the default level, in a quarter less time. Faster levels leave 40 % more. */
const PARAMETERS = { [zlib.ZSTD_c_compressionLevel]: 1, [zlib.ZSTD_c_checksumFlag]: 1 };

/**
 * Single pages are read and written by this thread: that takes two microseconds, and a call to Node's pool forty. Images lie in
 * memory or have just been read, so no disk is waited for.
 */
const SMALL_BYTES = 64 * 1024;

/** A part of a file. */
export interface Extent {
  readonly at: number;
  readonly bytes: number;
}

/** A file in one piece after the other. */
export function wholePieces(bytes: number): Extent[][] {
  const count = Math.ceil(bytes / PIECE_BYTES);
  return Array.from({ length: count }, (_, index) => {
    const at = index * PIECE_BYTES;
    return [{ at, bytes: Math.min(PIECE_BYTES, bytes - at) }];
  });
}

/**
 * Compresses parts of the file `from` into the new file `to`. Each piece joins some extents, at most `PIECE_BYTES` together.
 * Returns the compressed length of each piece. The caller makes the result durable.
 */
export async function writePieces(
  from: string,
  to: string,
  pieces: readonly (readonly Extent[])[],
  signal: AbortSignal,
): Promise<number[]> {
  return withFile(from, O_RDONLY | O_NOFOLLOW, (source) =>
    withFile(to, NEW, async (target) => {
      const lengths: number[] = [];
      const pending: Promise<void>[] = [];
      try {
        for (const extents of pieces) {
          signal.throwIfAborted();
          const before = pending.at(-1);
          const piece = buffers.withBuffer(async (buffer) => {
            const chunks = await deflate(await readExtents(source, extents, buffer));
            // Pieces are written in order. No deadlock: buffers are granted in order, so the previous piece has one already.
            await before;
            for (const chunk of chunks) await target.writeFile(chunk);
            lengths.push(chunks.reduce((sum, { length }) => sum + length, 0));
            for (const chunk of chunks) freeNow(chunk);
          });
          // Avoids an unhandled rejection: after another piece fails, this promise may never be awaited.
          piece.catch(() => {});
          pending.push(piece);
          if (pending.length === AT_ONCE) await pending.shift();
        }
        await Promise.all(pending);
      } finally {
        // No piece may read from the file after it is closed.
        await Promise.allSettled(pending);
      }
      return lengths;
    }),
  );
}

/** What was written by `writePieces`: the file, its uncompressed size, and the compressed length of each piece. */
export interface PieceFile {
  readonly path: string;
  readonly bytes: number;
  readonly lengths: readonly number[];
}

/** Which pieces are read, and what happens with each. `use` may keep the content only until it resolves. */
export interface PieceReader {
  readonly isWanted?: (piece: number) => boolean;
  readonly use: (content: Buffer, piece: number) => Promise<void>;
  /** The error for a piece that differs from what was written. */
  readonly corrupt: (cause?: unknown) => Error;
}

export async function readPieces(
  { path, bytes, lengths }: PieceFile,
  { isWanted = () => true, use, corrupt }: PieceReader,
): Promise<void> {
  let at = 0;
  const places = lengths.map((length, piece) => {
    const place = { piece, at, length };
    at += length;
    return place;
  });
  await withFile(path, O_RDONLY | O_NOFOLLOW, (source) =>
    forEachBounded(
      places.filter(({ piece }) => isWanted(piece)),
      AT_ONCE,
      async ({ piece, at: from, length }) => {
        if (length > MAX_PIECE_BYTES) throw corrupt();
        const expected = Math.min(PIECE_BYTES, bytes - piece * PIECE_BYTES);
        await buffers.withBuffer(async (buffer) => {
          const packed = await readExtents(source, [{ at: from, bytes: length }], buffer);
          // `chunkSize` exceeds the piece size, so that Node allocates one output buffer only.
          const limits = { maxOutputLength: PIECE_BYTES, chunkSize: MAX_PIECE_BYTES };
          const content = await inflate(packed, limits).catch((cause: unknown) => {
            throw corrupt(cause);
          });
          if (content.length !== expected) throw corrupt();
          await use(content, piece);
          freeNow(content);
        });
      },
    ),
  );
}

/** Creates the file. */
export function withNewFile<T>(path: string, work: (file: FileHandle) => Promise<T>): Promise<T> {
  return withFile(path, NEW, work);
}

/** On a full disk a write can be incomplete without an error. */
export async function writeAt(target: FileHandle, content: Buffer, at: number): Promise<void> {
  for (let written = 0; written < content.length; ) {
    const [from, length] = [written, content.length - written];
    written +=
      length > SMALL_BYTES
        ? (await target.write(content, from, length, at + from)).bytesWritten
        : writeSync(target.fd, content, from, length, at + from);
  }
}

/** Fills the buffer. Returns the filled part, which is shorter than the extents when the file ends before. */
async function readExtents(source: FileHandle, extents: readonly Extent[], buffer: Buffer): Promise<Buffer> {
  let filled = 0;
  for (const { at, bytes } of extents) {
    for (let read = 0; read < bytes; ) {
      const [length, from] = [bytes - read, at + read];
      const count =
        extents.length === 1 || length > SMALL_BYTES
          ? (await source.read(buffer, filled, length, from)).bytesRead
          : readSync(source.fd, buffer, filled, length, from);
      if (count === 0) return buffer.subarray(0, filled);
      read += count;
      filled += count;
    }
  }
  return buffer.subarray(0, filled);
}

async function withFile<T>(path: string, flags: number, work: (file: FileHandle) => Promise<T>): Promise<T> {
  const file = await open(path, flags, 0o600);
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

function deflate(piece: Buffer): Promise<Buffer[]> {
  // One call for each piece: with the default size a piece would move between the threads a hundred times.
  const chunkSize = piece.length + ROOM_BYTES;
  // The chunks share one buffer. Node's own call would copy them into another buffer, and leave the first to the garbage collector.
  return createZstdCompress({ params: PARAMETERS, chunkSize }).end(piece).toArray();
}
