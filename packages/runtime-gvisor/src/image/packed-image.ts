/**
 * Memory images as checkpoints keep them. The files that runsc wrote are compressed into the checkpoint, except the pages of the
 * memory. A page that an earlier checkpoint has is taken from its page layer. The other pages become a new page layer.
 *
 * ```
 * checkpoint.img.zst …  compressed in pieces
 * pieces.json           the length of each piece, and for each page its layer and its place there; written last
 * ```
 *
 * In images of earlier versions `pages.img` is one of the files. About a quarter of the size of the pages is left to make
 * durable, to verify and to keep, and after the first pause a tenth of that.
 */
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { allDone, forEachBounded } from '@torpor/host';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import { mapCheckpointReadErrors, mapWriteErrors } from '@torpor/runtime-shared';
import { z } from 'zod';
import { digestPages } from './page-digests.ts';
import { copyPages, type PlacedRun, writePageLayer } from './page-layer.ts';
import { type KnownPages, PAGE_BYTES, planPages } from './page-plan.ts';
import { PIECE_BYTES, readPieces, wholePieces, withNewFile, writeAt, writePieces } from './piece-file.ts';

/** A packed image: the directory in the checkpoint, and the directories of its page layers. */
export interface PackedImage {
  readonly directory: string;
  /** The first is the checkpoint's own. */
  readonly layers: readonly string[];
}

/** Where the pages of an image go. */
export interface PageDirectories {
  /** An open layer, which takes the pages that none of the layers below has. */
  readonly own: string;
  /** The pages of an earlier image. */
  readonly known: KnownPages;
}

/** In one pass: there may be a hundred thousand. */
function areRuns(value: unknown): boolean {
  return Array.isArray(value) && value.every((number) => Number.isSafeInteger(number) && number >= 0);
}

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
  /** Absent in images of earlier versions. */
  pages: z
    .object({
      bytes: z.number(),
      /** `layer`, `first` and `count` of each run, one after the other: objects would take three times the room. */
      runs: z.custom<readonly number[]>(areRuns),
    })
    .exactOptional(),
});

type PackIndex = Readonly<z.infer<typeof indexSchema>>;
type PackedFile = Readonly<PackIndex['files'][number]>;

const INDEX = 'pieces.json';
/** The file of runsc with the memory of the processes. */
const PAGES_FILE = 'pages.img';
/** While one layer is opened, another one is read. */
const LAYERS_AT_ONCE = 2;

/**
 * Packs into an empty directory, and the pages into page layers. Without `pages` they go into the directory too, as earlier
 * versions read them. The caller makes both durable. Returns which of the known layers the image refers to.
 */
export async function packImage(
  raw: string,
  directory: string,
  pages: PageDirectories | null,
  signal: AbortSignal,
): Promise<readonly number[]> {
  if (pages === null) {
    await mapWriteErrors(directory, () => packFiles(raw, directory, undefined, signal));
    return [];
  }
  const path = join(raw, PAGES_FILE);
  const { size: bytes } = await stat(path);
  const digests = await digestPages(path, bytes, signal);
  const plan = await planPages(digests, pages.known);
  const runs = plan.runs.flatMap(({ layer, first, count }) => [layer, first, count]);
  await allDone(
    mapWriteErrors(directory, () => packFiles(raw, directory, { bytes, runs }, signal)),
    mapWriteErrors(pages.own, () => writePageLayer(pages.own, { path, bytes, digests }, plan.own, signal)),
  );
  return plan.layers;
}

/** `pages` says where the pages of the memory are. Without it they are one of the files. */
async function packFiles(
  raw: string,
  directory: string,
  pages: PackIndex['pages'] | undefined,
  signal: AbortSignal,
): Promise<void> {
  const names = (await readdir(raw)).filter((name) => pages === undefined || name !== PAGES_FILE).sort();
  const packFile = async (name: string): Promise<PackedFile> => {
    const { size: bytes } = await stat(join(raw, name));
    const to = join(directory, `${name}.zst`);
    return { name, bytes, pieces: await writePieces(join(raw, name), to, wholePieces(bytes), signal) };
  };
  const files = await allDone(...names.map(packFile));
  const about = { version: 1, pieceBytes: PIECE_BYTES, files } as const;
  const index: PackIndex = pages === undefined ? about : { ...about, pages };
  await writeFile(join(directory, INDEX), JSON.stringify(index), { mode: 0o600 });
}

/** The size of the unpacked image. */
export async function packedBytes({ directory }: PackedImage, id: CheckpointId): Promise<number> {
  const { files, pages } = await mapCheckpointReadErrors(id, directory, () => readIndex(directory, id));
  return files.reduce((sum, { bytes }) => sum + bytes, pages?.bytes ?? 0);
}

/** Unpacks into an empty directory. A piece that differs from what was packed proves that the checkpoint is corrupt. */
export async function unpackImage(packed: PackedImage, raw: string, id: CheckpointId): Promise<void> {
  const { directory } = packed;
  await mapCheckpointReadErrors(id, directory, async () => {
    const { files, pages } = await readIndex(directory, id);
    for (const file of files) await unpackFile(directory, raw, file, id);
    if (pages !== undefined) await unpackPages(packed, join(raw, PAGES_FILE), pages, id);
  });
}

async function unpackFile(
  directory: string,
  raw: string,
  { name, bytes, pieces }: PackedFile,
  id: CheckpointId,
): Promise<void> {
  const path = join(directory, `${name}.zst`);
  await withNewFile(join(raw, name), (target) =>
    readPieces(
      { path, bytes, lengths: pieces },
      {
        use: (content, piece) => writeAt(target, content, piece * PIECE_BYTES),
        corrupt: (cause) => corrupt(id, path, cause),
      },
    ),
  );
}

async function unpackPages(
  { directory, layers }: PackedImage,
  to: string,
  pages: NonNullable<PackIndex['pages']>,
  id: CheckpointId,
): Promise<void> {
  const runs = placedRuns(pages.runs);
  const last = runs.at(-1);
  const count = last === undefined ? 0 : last.to + last.count;
  if (count !== Math.ceil(pages.bytes / PAGE_BYTES)) throw corrupt(id, join(directory, INDEX));
  await withNewFile(to, async (target) => {
    await target.truncate(pages.bytes);
    await forEachBounded(
      Map.groupBy(runs, ({ layer }) => layer),
      LAYERS_AT_ONCE,
      async ([index, ofLayer]) => {
        const layer = layers[index];
        if (layer === undefined) throw corrupt(id, join(directory, INDEX));
        await copyPages(layer, ofLayer, target, (path, cause) => corrupt(id, path, cause));
      },
    );
  });
}

function placedRuns(flat: readonly number[]): PlacedRun[] {
  const runs: PlacedRun[] = [];
  let to = 0;
  for (let at = 0; at + 2 < flat.length; at += 3) {
    const [layer = 0, first = 0, count = 0] = flat.slice(at, at + 3);
    runs.push({ layer, first, count, to });
    to += count;
  }
  return runs;
}

async function readIndex(directory: string, id: CheckpointId): Promise<PackIndex> {
  const text = await readFile(join(directory, INDEX), 'utf8');
  try {
    return indexSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw corrupt(id, INDEX, cause);
  }
}

function corrupt(checkpointId: CheckpointId, path: string, cause?: unknown): TorporError {
  return new TorporError('checkpoint_corrupt', `The memory of ${checkpointId} is damaged.`, {
    checkpointId,
    details: { path },
    cause,
  });
}
