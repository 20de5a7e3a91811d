/**
 * The seal of a layer, `seal.json`: one checksummed record. A layer is sealed when the file exists. The record is accepted
 * only if its checksum matches and it names this layer.
 *
 * The record also has the mode, owner and mtime of the layer's top directory. An entry that is added to or removed from that
 * directory changes its mtime, so one `lstat` shows such a change. Of a layer with few files it may have their sizes too.
 */
import { type BigIntStats, constants, lstatSync } from 'node:fs';
import { lstat, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { exists, isMissing, syncDirectory, writeFileDurably } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { checksummedRecord, unwrapChecksummed } from './checksummed-record.ts';
import { FILES, SEAL } from './layer-directory.ts';
import { corrupt, mapReadErrors, missing, type Place } from './layer-failure.ts';
import { layerIdSchema } from './layer-id.ts';
import type { SealRecord } from './layers.ts';

const VERSION = 1;
/** Far more than a seal needs; a larger file is not a seal. */
const LARGEST = 4096;

/** In the order of `topFingerprint`. */
const topSchema = z.object({ mode: z.number(), uid: z.number(), gid: z.number(), mtimeNs: z.string() });
type TopFingerprint = z.infer<typeof topSchema>;

const sealSchema = z.object({
  version: z.literal(VERSION),
  layerId: layerIdSchema,
  nonce: z.string(),
  sealedAt: z.number(),
  entries: z.number(),
  bytes: z.number(),
  sizes: z.record(z.string(), z.number()).exactOptional(),
  top: topSchema,
});
type Seal = z.infer<typeof sealSchema>;

/** The caller has synced the files of the layer. */
export async function writeSeal(directory: string, record: SealRecord): Promise<void> {
  const top = topFingerprint(await lstat(join(directory, FILES), { bigint: true }));
  await writeFileDurably(join(directory, SEAL), checksummedRecord({ version: VERSION, ...record, top }));
}

/** Durable: the layer is open again, even after a power loss. */
export async function removeSeal(directory: string): Promise<void> {
  await rm(join(directory, SEAL), { force: true });
  await syncDirectory(directory);
}

export function isSealed(directory: string): Promise<boolean> {
  return exists(join(directory, SEAL));
}

/**
 * Reads the seals of layers, and reads a seal again only when its file has changed. The stack of a
 * sandbox that was paused often has many layers, and every wake inspects each of them more than once.
 */
export class SealReader {
  readonly #known = new Map<string, KnownSeal>();

  /** Checks the record against the layer, without walking through its files. */
  async read(directory: string, place: Place): Promise<SealRecord> {
    const known = this.#known.get(directory);
    if (known !== undefined && isAsBefore(directory, known)) {
      await requireSizes(directory, known.seal, place);
      return recordOf(known.seal);
    }
    const [top, file] = await Promise.all([topOf(directory, place), fileFingerprint(directory)]);
    const at = { ...place, entry: SEAL };
    const seal = parse(await readText(directory, at), at);
    if (!isSameTop(seal.top, topFingerprint(top))) {
      throw corrupt({ ...place, entry: FILES }, 'was changed after the layer was sealed');
    }
    await requireSizes(directory, seal, place);
    // If the file changed between stat and read, the stale stat makes the next call read the file again.
    if (file !== undefined) this.#known.set(directory, { file, seal });
    return recordOf(seal);
  }

  forget(directory: string): void {
    this.#known.delete(directory);
  }
}

interface KnownSeal {
  readonly file: string;
  readonly seal: Seal;
}

function recordOf({ version: _, top: __, ...record }: Seal): SealRecord {
  return record;
}

/** Synchronous: the kernel still has these entries in memory from the previous call. */
function isAsBefore(directory: string, { file, seal }: KnownSeal): boolean {
  const [top, now] = [FILES, SEAL].map((name) => {
    try {
      return lstatSync(join(directory, name), { bigint: true });
    } catch {
      // The full check that follows reports the reason.
      return undefined;
    }
  });
  if (top?.isDirectory() !== true || now === undefined) return false;
  return fingerprintOf(now) === file && isSameTop(seal.top, topFingerprint(top));
}

async function requireSizes(directory: string, { sizes = {} }: Seal, place: Place): Promise<void> {
  const looks = Object.entries(sizes).map(async ([name, size]) => {
    const at = { ...place, entry: `${FILES}/${name}` };
    const found = await mapReadErrors(at, () => lstat(join(directory, FILES, name)));
    if (!found.isFile() || found.size !== size) throw corrupt(at, 'has another size than when it was sealed');
  });
  await Promise.all(looks);
}

async function topOf(directory: string, place: Place) {
  const top = await mapReadErrors(place, () => lstat(join(directory, FILES), { bigint: true })).catch(
    async (thrown: unknown) => {
      // A layer without its `fs` is damaged; a layer without its directory is missing.
      if (!(thrown instanceof TorporError) || thrown.code !== 'checkpoint_missing') throw thrown;
      await mapReadErrors(place, () => lstat(directory));
      throw missing({ ...place, entry: FILES }, thrown);
    },
  );
  if (!top.isDirectory()) throw corrupt({ ...place, entry: FILES }, 'is not a directory any more');
  return top;
}

/** Changes whenever the file is written or replaced. Undefined when `lstat` fails. */
async function fileFingerprint(directory: string): Promise<string | undefined> {
  const found = await lstat(join(directory, SEAL), { bigint: true }).catch(() => undefined);
  return found && fingerprintOf(found);
}

function fingerprintOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join();
}

async function readText(directory: string, place: Place): Promise<string> {
  try {
    const file = await open(join(directory, SEAL), constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(LARGEST), 0, LARGEST, 0);
      return buffer.toString('utf8', 0, bytesRead);
    } finally {
      await file.close();
    }
  } catch (thrown) {
    if (isMissing(thrown)) throw corrupt(place, 'is not there: the layer was never sealed', thrown);
    return mapReadErrors(place, () => Promise.reject(thrown));
  }
}

function parse(text: string, place: Place): Seal {
  const json = unwrapChecksummed(text);
  if (json === undefined) throw corrupt(place, 'is not what was written when the layer was sealed');
  const record: unknown = JSON.parse(json);
  if (!z.object({ version: z.literal(VERSION) }).safeParse(record).success) {
    throw new TorporError('version_unsupported', `Layer ${place.layerId} was sealed by a newer version.`, {
      details: { ...place },
    });
  }
  const { data: seal } = sealSchema.safeParse(record);
  if (seal === undefined) throw corrupt(place, 'has another form than a seal');
  // The seal of a layer directory that was renamed still has a valid checksum.
  if (seal.layerId !== place.layerId) throw corrupt(place, 'is the seal of another layer');
  return seal;
}

function topFingerprint(stats: {
  readonly mode: bigint;
  readonly uid: bigint;
  readonly gid: bigint;
  readonly mtimeNs: bigint;
}): TopFingerprint {
  return {
    mode: Number(stats.mode & 0o7777n),
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    mtimeNs: String(stats.mtimeNs),
  };
}

function isSameTop(a: TopFingerprint, b: TopFingerprint): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
