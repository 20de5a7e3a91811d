/**
 * Page layers: the pages of a memory image that no earlier checkpoint had. A layer of the checkpoint store, so that many
 * checkpoints can use it: it is claimed, sealed, verified, replicated and removed like layers of files.
 *
 * ```
 * pages.zst    the pages one after the other, in compressed pieces
 * pages.json   the number of pages and the length of each piece
 * digests      the digest of each page, by which later images find it
 * ```
 */

import type { FileHandle } from 'node:fs/promises';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { DIGEST_BYTES, PAGE_BYTES, type PagePlan, type PageRun } from './page-plan.ts';
import { type Extent, PIECE_BYTES, readPieces, writeAt, writePieces } from './piece-file.ts';

const indexSchema = z.object({
  version: z.literal(1),
  bytes: z.number(),
  /** The compressed length of each piece. */
  pieces: z.array(z.number()),
});

const PAGES = 'pages.zst';
const INDEX = 'pages.json';
const DIGESTS = 'digests';
const PAGES_OF_PIECE = PIECE_BYTES / PAGE_BYTES;

/** The digests of a page layer. Empty when they cannot be read: then the next image stores these pages itself. */
export async function readDigests(layer: string): Promise<Buffer> {
  const digests = await readFile(join(layer, DIGESTS)).catch(() => Buffer.alloc(0));
  return digests.length % DIGEST_BYTES === 0 ? digests : Buffer.alloc(0);
}

/** Writes the own pages of an image into the directory of an open layer. The caller seals the layer. */
export async function writePageLayer(
  layer: string,
  image: { readonly path: string; readonly bytes: number; readonly digests: Buffer },
  own: PagePlan['own'],
  signal: AbortSignal,
): Promise<void> {
  const pieces: Extent[][] = [];
  for (let at = 0; at < own.length; at += PAGES_OF_PIECE)
    pieces.push(extentsOf(own.slice(at, at + PAGES_OF_PIECE), image.bytes));
  const lengths = await writePieces(image.path, join(layer, PAGES), pieces, signal);
  const bytes = pieces.flat().reduce((sum, extent) => sum + extent.bytes, 0);
  const index: z.infer<typeof indexSchema> = { version: 1, bytes, pieces: lengths };
  await writeFile(join(layer, INDEX), JSON.stringify(index), { mode: 0o600 });
  const digests = own.map((page) => image.digests.subarray(page * DIGEST_BYTES, (page + 1) * DIGEST_BYTES));
  await writeFile(join(layer, DIGESTS), Buffer.concat(digests), { mode: 0o600 });
}

/** Consecutive pages are one extent. */
function extentsOf(pages: readonly number[], bytes: number): Extent[] {
  const extents: { at: number; bytes: number }[] = [];
  for (const page of pages) {
    const at = page * PAGE_BYTES;
    const length = Math.min(PAGE_BYTES, bytes - at);
    const last = extents.at(-1);
    if (last !== undefined && last.at + last.bytes === at) last.bytes += length;
    else extents.push({ at, bytes: length });
  }
  return extents;
}

/** A run, and the page of the image where it begins. */
export interface PlacedRun extends PageRun {
  readonly to: number;
}

/** Copies pages of a layer to their places in an image. */
export async function copyPages(
  layer: string,
  runs: readonly PlacedRun[],
  target: FileHandle,
  corrupt: (path: string, cause?: unknown) => Error,
): Promise<void> {
  const [path, indexPath] = [join(layer, PAGES), join(layer, INDEX)];
  const { bytes, pieces } = parseIndex(await readFile(indexPath, 'utf8'), (cause) =>
    corrupt(indexPath, cause),
  );
  const byPiece = new Map<number, PlacedRun[]>();
  for (const run of runs) {
    if ((run.first + run.count - 1) * PAGE_BYTES >= bytes) throw corrupt(indexPath);
    for (const part of splitAtPieces(run)) {
      const piece = Math.floor(part.first / PAGES_OF_PIECE);
      const parts = byPiece.get(piece);
      if (parts === undefined) byPiece.set(piece, [part]);
      else parts.push(part);
    }
  }
  await readPieces(
    { path, bytes, lengths: pieces },
    {
      isWanted: (piece) => byPiece.has(piece),
      use: async (content, piece) => {
        for (const { first, count, to } of byPiece.get(piece) ?? []) {
          const from = (first % PAGES_OF_PIECE) * PAGE_BYTES;
          await writeAt(target, content.subarray(from, from + count * PAGE_BYTES), to * PAGE_BYTES);
        }
      },
      corrupt: (cause) => corrupt(path, cause),
    },
  );
}

function* splitAtPieces({ layer, first, count, to }: PlacedRun): Generator<PlacedRun> {
  for (let done = 0; done < count; ) {
    const from = first + done;
    const part = Math.min(count - done, PAGES_OF_PIECE - (from % PAGES_OF_PIECE));
    yield { layer, first: from, count: part, to: to + done };
    done += part;
  }
}

function parseIndex(text: string, corrupt: (cause: unknown) => Error): z.infer<typeof indexSchema> {
  try {
    return indexSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw corrupt(cause);
  }
}
