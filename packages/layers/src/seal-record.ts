/**
 * The seal of a layer, `seal.json`: two lines, the record and the sha256 of the first line. A layer is sealed
 * when the file is there, and the file is believed only when it is whole and speaks of this very layer.
 *
 * It also says what the top of the layer looked like, so that something that was put in or taken out there
 * is noticed at the cost of one call.
 */
import { createHash } from 'node:crypto';
import { type BigIntStats, constants, lstatSync } from 'node:fs';
import { lstat, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, syncDirectory, writeFileDurably } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { exists } from './exists.ts';
import { FILES, SEAL } from './layer-directory.ts';
import { corrupt, missing, type Place, reading } from './layer-failure.ts';
import type { SealRecord } from './layers.ts';

const VERSION = 1;
/** Far more than a record needs; a larger file is not one. */
const LARGEST = 4096;

interface TopMark {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeNs: string;
}

/** Everything it speaks of must be durable by now. */
export async function writeSeal(directory: string, record: SealRecord): Promise<void> {
  const top = topMark(await lstat(join(directory, FILES), { bigint: true }));
  const line = JSON.stringify({ version: VERSION, ...record, top });
  await writeFileDurably(join(directory, SEAL), `${line}\n${JSON.stringify({ sha256: sha256Of(line) })}\n`);
}

/** From then on the layer counts as never sealed, after a loss of power too. */
export async function removeSeal(directory: string): Promise<void> {
  await rm(join(directory, SEAL), { force: true });
  await syncDirectory(directory);
}

export function isSealed(directory: string): Promise<boolean> {
  return exists(join(directory, SEAL));
}

/**
 * Reads the seals of layers, and each again only when something has changed: a sandbox that has slept often stands on
 * many, and all are looked at, twice, whenever it wakes.
 */
export class SealReader {
  readonly #known = new Map<string, KnownSeal>();

  /** Checks the record against the layer as far as that takes no walk through its files. */
  async read(directory: string, place: Place): Promise<SealRecord> {
    const known = this.#known.get(directory);
    if (known !== undefined && isAsBefore(directory, known)) return recordOf(known.seal);
    const [top, file] = await Promise.all([topOf(directory, place), fileMark(directory)]);
    const at = { ...place, entry: SEAL };
    const seal = parse(await readText(directory, at), at);
    if (!isSameTop(seal.top, topMark(top))) {
      throw corrupt({ ...place, entry: FILES }, 'was changed after the layer was sealed');
    }
    // What was read may be newer than the mark; it is then read once more next time, and not missed.
    if (file !== undefined) this.#known.set(directory, { file, seal });
    return recordOf(seal);
  }

  forget(directory: string): void {
    this.#known.delete(directory);
  }
}

type Seal = SealRecord & { readonly version: number; readonly top: TopMark };

interface KnownSeal {
  readonly file: string;
  readonly seal: Seal;
}

function recordOf({ version: _, top: __, ...record }: Seal): SealRecord {
  return record;
}

/** In place: what was looked at before, the kernel still has in memory. */
function isAsBefore(directory: string, { file, seal }: KnownSeal): boolean {
  const [top, now] = [FILES, SEAL].map((name) => {
    try {
      return lstatSync(join(directory, name), { bigint: true });
    } catch {
      // Whoever looks closely says what is the matter.
      return undefined;
    }
  });
  if (top?.isDirectory() !== true || now === undefined) return false;
  return markOf(now) === file && isSameTop(seal.top, topMark(top));
}

async function topOf(directory: string, place: Place) {
  const top = await reading(place, () => lstat(join(directory, FILES), { bigint: true })).catch(
    async (thrown: unknown) => {
      // Without its files a layer is not whole; without its directory it is not there.
      if (!(thrown instanceof TorporError) || thrown.code !== 'checkpoint_missing') throw thrown;
      await reading(place, () => lstat(directory));
      throw missing({ ...place, entry: FILES }, thrown);
    },
  );
  if (!top.isDirectory()) throw corrupt({ ...place, entry: FILES }, 'is not a directory any more');
  return top;
}

/** Another whenever somebody has written to it or put another in its place; undefined when it cannot be seen. */
async function fileMark(directory: string): Promise<string | undefined> {
  const found = await lstat(join(directory, SEAL), { bigint: true }).catch(() => undefined);
  return found && markOf(found);
}

function markOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
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
    return reading(place, () => Promise.reject(thrown));
  }
}

function parse(text: string, place: Place): Seal {
  const [first = '', second = ''] = text.split('\n');
  let record: Partial<Seal>;
  try {
    if (JSON.parse(second).sha256 !== sha256Of(first)) throw new Error('another checksum');
    record = JSON.parse(first);
  } catch (cause) {
    throw corrupt(place, 'is not what was written when the layer was sealed', cause);
  }
  if (record.version !== VERSION) {
    throw new TorporError('version_unsupported', `Layer ${place.layerId} was sealed by a newer version.`, {
      details: { ...place },
    });
  }
  // A whole directory that was given another name has a checksum that fits.
  if (record.layerId !== place.layerId) throw corrupt(place, 'is the seal of another layer');
  return record as Seal;
}

function topMark(stats: {
  readonly mode: bigint;
  readonly uid: bigint;
  readonly gid: bigint;
  readonly mtimeNs: bigint;
}): TopMark {
  return {
    mode: Number(stats.mode & 0o7777n),
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    mtimeNs: String(stats.mtimeNs),
  };
}

function isSameTop(a: TopMark, b: TopMark): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function sha256Of(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
