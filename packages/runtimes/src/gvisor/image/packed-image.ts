/**
 * A memory image as it lies in a checkpoint: every file that runsc wrote, cut into pieces that are compressed each
 * by itself, so that all cores work on them both ways. What is left is about a quarter, which has to be made
 * durable, verified and kept.
 *
 * ```
 * pages.img.zst …   the pieces one after the other, each a whole zstd frame with its checksum (`zstd -d` reads it)
 * pieces.json       how long each of them is; written last
 * ```
 */
import { constants } from 'node:fs';
import { type FileHandle, open, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { constants as zlib, zstdCompress, zstdDecompress } from 'node:zlib';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { forEachBounded } from '../../bounded.ts';
import { readingCheckpoint, writing } from '../../storage-failure.ts';

interface PackedFile {
  readonly name: string;
  readonly bytes: number;
  /** The compressed length of each. */
  readonly pieces: readonly number[];
}

interface Pieces {
  readonly version: 1;
  readonly pieceBytes: number;
  readonly files: readonly PackedFile[];
}

const RECORD = 'pieces.json';
/** Larger ones compress hardly better, and a small image would not keep all cores busy. */
const PIECE_BYTES = 2 * 1024 * 1024;
/** As many as there are threads in Node's pool. */
const AT_ONCE = 4;
const { O_RDONLY, O_NOFOLLOW, O_WRONLY, O_CREAT, O_EXCL } = constants;
const NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;

const deflate = promisify(zstdCompress);
const inflate = promisify(zstdDecompress);
/** Of memory as it is found, this level leaves hardly more than those above it, in less time. */
const HOW = {
  params: { [zlib.ZSTD_c_compressionLevel]: -1, [zlib.ZSTD_c_checksumFlag]: 1 },
  // Each in one go: by default a piece would go back and forth between the threads a hundred times.
  chunkSize: PIECE_BYTES,
};

/** Into a directory that is empty. Whoever asks makes it durable. */
export async function packImage(raw: string, packed: string, signal: AbortSignal): Promise<void> {
  await writing(packed, async () => {
    const files: PackedFile[] = [];
    for (const name of (await readdir(raw)).sort()) {
      const pieces = await packFile(join(raw, name), join(packed, `${name}.zst`), signal);
      files.push({ name, bytes: (await stat(join(raw, name))).size, pieces });
    }
    const record: Pieces = { version: 1, pieceBytes: PIECE_BYTES, files };
    await writeFile(join(packed, RECORD), JSON.stringify(record), { mode: 0o600 });
  });
}

/** What it takes when it is unpacked. */
export async function packedBytes(packed: string, id: CheckpointId): Promise<number> {
  const text = await readingCheckpoint(id, packed, () => readFile(join(packed, RECORD), 'utf8'));
  return readPieces(text, id).files.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Into a directory that is empty. A piece that is not what was packed proves the checkpoint corrupt. */
export async function unpackImage(packed: string, raw: string, id: CheckpointId): Promise<void> {
  await readingCheckpoint(id, packed, async () => {
    const { pieceBytes, files } = readPieces(await readFile(join(packed, RECORD), 'utf8'), id);
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
      const pending: Promise<Buffer>[] = [];
      const writeNext = async () => {
        const piece = await pending.shift();
        if (piece === undefined) return;
        await target.writeFile(piece);
        pieces.push(piece.length);
      };
      try {
        for (let at = 0; at < size; at += PIECE_BYTES) {
          signal.throwIfAborted();
          pending.push(packPiece(source, at, Math.min(PIECE_BYTES, size - at)));
          if (pending.length === AT_ONCE) await writeNext();
        }
        while (pending.length > 0) await writeNext();
      } finally {
        // Nobody reads from a file that its owner has closed.
        await Promise.allSettled(pending);
      }
      return pieces;
    }),
  );
}

async function packPiece(source: FileHandle, at: number, bytes: number): Promise<Buffer> {
  return deflate(await readPiece(source, at, bytes), HOW);
}

async function unpackFile(
  from: string,
  to: string,
  { bytes, pieces }: PackedFile,
  pieceBytes: number,
  id: CheckpointId,
): Promise<void> {
  let next = 0;
  const places = pieces.map((length, index) => {
    const place = { length, from: next, to: index * pieceBytes };
    next += length;
    return place;
  });
  await withFile(from, O_RDONLY | O_NOFOLLOW, (source) =>
    withFile(to, NEW, async (target) => {
      await forEachBounded(places, AT_ONCE, async (place) => {
        const expected = Math.min(pieceBytes, bytes - place.to);
        const piece = await readPiece(source, place.from, place.length);
        const whole = await inflate(piece, { maxOutputLength: pieceBytes, chunkSize: pieceBytes }).catch(
          (cause: unknown) => {
            throw corrupt(id, from, cause);
          },
        );
        if (whole.length !== expected) throw corrupt(id, from);
        await writePiece(target, whole, place.to);
      });
    }),
  );
}

/** Fewer bytes than that when the file ends before. */
async function readPiece(source: FileHandle, at: number, bytes: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(bytes);
  let read = 0;
  while (read < bytes) {
    const { bytesRead } = await source.read(buffer, read, bytes - read, at + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return buffer.subarray(0, read);
}

/** A disk that is full takes a part of it without a word. */
async function writePiece(target: FileHandle, piece: Buffer, at: number): Promise<void> {
  for (let written = 0; written < piece.length; ) {
    const { bytesWritten } = await target.write(piece, written, piece.length - written, at + written);
    written += bytesWritten;
  }
}

function readPieces(text: string, id: CheckpointId): Pieces {
  let pieces: Pieces;
  try {
    pieces = JSON.parse(text) as Pieces;
  } catch (cause) {
    throw corrupt(id, RECORD, cause);
  }
  if (pieces.version !== 1 || !Array.isArray(pieces.files)) throw corrupt(id, RECORD);
  // What would be written somewhere else was not written by us.
  for (const { name } of pieces.files) if (name !== basename(name)) throw corrupt(id, RECORD);
  return pieces;
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
