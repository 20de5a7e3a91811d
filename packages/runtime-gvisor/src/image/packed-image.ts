/**
 * Packs memory images for checkpoints: every file that runsc wrote is cut into pieces, and each piece is compressed by
 * itself, so that all cores can pack and unpack. About a quarter of the size is left to make durable, to verify and to keep.
 *
 * ```
 * pages.img.zst …   the pieces one after the other, each a whole zstd frame with its checksum (`zstd -d` reads the file)
 * pieces.json       the length of each piece; written last
 * ```
 */
import { constants } from 'node:fs';
import { type FileHandle, open, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { createZstdCompress, constants as zlib, zstdDecompress } from 'node:zlib';
import { forEachBounded } from '@torpor/host';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapCheckpointReadErrors, mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import { BufferPool, freeNow } from './buffer-pool.ts';

const indexSchema = z.object({
  version: z.literal(1),
  pieceBytes: z.number(),
  files: z.array(
    z.object({
      // A name that leads out of the directory was not written by `packImage`.
      name: z.string().refine((name) => name === basename(name)),
      bytes: z.number(),
      /** The compressed length of each piece. */
      pieces: z.array(z.number()),
    }),
  ),
});

type PackIndex = Readonly<z.infer<typeof indexSchema>>;
type PackedFile = Readonly<PackIndex['files'][number]>;

const INDEX = 'pieces.json';
/** Larger pieces compress hardly better, and a small image would not keep all cores busy. */
const PIECE_BYTES = 2 * 1024 * 1024;
/**
 * Each processor compresses a piece, and another piece is read or written meanwhile. More pieces at once would take memory and
 * not be ready sooner. The limit leaves most threads of Node's pool to other work with files (`bin/torpor.mjs` of the CLI sets their number).
 */
const AT_ONCE = Math.min(4, availableParallelism() + 1);
/** Room for a piece in either form: an incompressible piece grows by less than the added bytes. */
const MAX_PIECE_BYTES = PIECE_BYTES + 64 * 1024;
/** Shared by all images, so that many sandboxes that pause at once take no more memory than one. */
const buffers = new BufferPool(AT_ONCE, MAX_PIECE_BYTES);
const { O_RDONLY, O_NOFOLLOW, O_WRONLY, O_CREAT, O_EXCL } = constants;
const NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;

const inflate = promisify(zstdDecompress);
/** On real memory images: 7 % more bytes than the default level, in a quarter less time. Faster levels leave 40 % more. */
const COMPRESSION = {
  params: { [zlib.ZSTD_c_compressionLevel]: 1, [zlib.ZSTD_c_checksumFlag]: 1 },
  // One call for each piece: with the default size a piece would move between the threads a hundred times.
  chunkSize: MAX_PIECE_BYTES,
};

/** Packs into an empty directory. The caller makes the result durable. */
export async function packImage(raw: string, packed: string, signal: AbortSignal): Promise<void> {
  await mapWriteErrors(packed, async () => {
    const files: PackedFile[] = [];
    for (const name of (await readdir(raw)).sort()) {
      const pieces = await packFile(join(raw, name), join(packed, `${name}.zst`), signal);
      files.push({ name, bytes: (await stat(join(raw, name))).size, pieces });
    }
    const index: PackIndex = { version: 1, pieceBytes: PIECE_BYTES, files };
    await writeFile(join(packed, INDEX), JSON.stringify(index), { mode: 0o600 });
  });
}

/** The size of the unpacked image. */
export async function packedBytes(packed: string, id: CheckpointId): Promise<number> {
  const text = await mapCheckpointReadErrors(id, packed, () => readFile(join(packed, INDEX), 'utf8'));
  return readIndex(text, id).files.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Unpacks into an empty directory. A piece that differs from what was packed proves that the checkpoint is corrupt. */
export async function unpackImage(packed: string, raw: string, id: CheckpointId): Promise<void> {
  await mapCheckpointReadErrors(id, packed, async () => {
    const { pieceBytes, files } = readIndex(await readFile(join(packed, INDEX), 'utf8'), id);
    for (const file of files) {
      const from = join(packed, `${file.name}.zst`);
      await unpackFile(from, join(raw, file.name), file, pieceBytes, id);
    }
  });
}

async function packFile(from: string, to: string, signal: AbortSignal): Promise<number[]> {
  return withFile(from, O_RDONLY | O_NOFOLLOW, (source) =>
    withFile(to, NEW, async (target) => {
      const { size } = await source.stat();
      const pieces: number[] = [];
      const pending: Promise<void>[] = [];
      try {
        for (let at = 0; at < size; at += PIECE_BYTES) {
          signal.throwIfAborted();
          const before = pending.at(-1);
          const piece = buffers.withBuffer(async (buffer) => {
            const bytes = Math.min(PIECE_BYTES, size - at);
            const chunks = await deflate(await readPiece(source, at, buffer.subarray(0, bytes)));
            // Pieces are written in order. No deadlock: buffers are granted in order, so the previous piece has one already.
            await before;
            for (const chunk of chunks) await target.writeFile(chunk);
            pieces.push(chunks.reduce((sum, { length }) => sum + length, 0));
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
      return pieces;
    }),
  );
}

/** The chunks share one buffer. Node's own call would copy them into another buffer, and leave the first to the garbage collector. */
function deflate(piece: Buffer): Promise<Buffer[]> {
  return createZstdCompress(COMPRESSION).end(piece).toArray();
}

async function unpackFile(
  from: string,
  to: string,
  { bytes, pieces }: PackedFile,
  pieceBytes: number,
  id: CheckpointId,
): Promise<void> {
  let next = 0;
  const extents = pieces.map((length, index) => {
    const extent = { length, from: next, to: index * pieceBytes };
    next += length;
    return extent;
  });
  await withFile(from, O_RDONLY | O_NOFOLLOW, (source) =>
    withFile(to, NEW, async (target) => {
      await forEachBounded(extents, AT_ONCE, async (extent) => {
        if (extent.length > MAX_PIECE_BYTES) throw corrupt(id, from);
        const expected = Math.min(pieceBytes, bytes - extent.to);
        await buffers.withBuffer(async (buffer) => {
          const piece = await readPiece(source, extent.from, buffer.subarray(0, extent.length));
          // `chunkSize` exceeds the piece size, so that Node allocates one output buffer only.
          const limits = { maxOutputLength: pieceBytes, chunkSize: MAX_PIECE_BYTES };
          const whole = await inflate(piece, limits).catch((cause: unknown) => {
            throw corrupt(id, from, cause);
          });
          if (whole.length !== expected) throw corrupt(id, from);
          await writePiece(target, whole, extent.to);
          freeNow(whole);
        });
      });
    }),
  );
}

/** Fills the buffer. Returns the filled part when the file ends before. */
async function readPiece(source: FileHandle, at: number, buffer: Buffer): Promise<Buffer> {
  let read = 0;
  while (read < buffer.length) {
    const { bytesRead } = await source.read(buffer, read, buffer.length - read, at + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return buffer.subarray(0, read);
}

/** On a full disk a write can be incomplete without an error. */
async function writePiece(target: FileHandle, piece: Buffer, at: number): Promise<void> {
  for (let written = 0; written < piece.length; ) {
    const { bytesWritten } = await target.write(piece, written, piece.length - written, at + written);
    written += bytesWritten;
  }
}

function readIndex(text: string, id: CheckpointId): PackIndex {
  try {
    return indexSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw corrupt(id, INDEX, cause);
  }
}

async function withFile<T>(path: string, flags: number, work: (file: FileHandle) => Promise<T>): Promise<T> {
  const file = await open(path, flags, 0o600);
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

function corrupt(checkpointId: CheckpointId, path: string, cause?: unknown): TorporError {
  return new TorporError('checkpoint_corrupt', `The memory of ${checkpointId} is damaged.`, {
    checkpointId,
    details: { path },
    cause,
  });
}
