/**
 * Writing a file that arrives over the wire: first whole under a name of its own beside the target, then
 * in its place by one rename. Whoever reads sees the old file or the new one, and an upload that breaks
 * off leaves nothing.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { access, chown, constants, type FileHandle, open, rename, rm, stat, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { TorporError } from '@torpor/protocol';
import { errnoOf, onPath } from '../agent-failures.ts';
import type { OpenWatches } from '../watch/open-watches.ts';
import { makeDirectories, missingDirectories, type Owner } from './ownership.ts';
import type { Place } from './paths.ts';
import { uploadName } from './upload-names.ts';

export interface Upload {
  readonly place: Place;
  readonly content: Readable;
  /** Who gets the file, also one that was there, and the directories that have to be made for it. */
  readonly owner: Owner | undefined;
  /** Known only when the client said so. */
  readonly expectedBytes?: number | undefined;
  /** Throws when what seemed to be the end of the content was only the end of the connection. */
  readonly checkComplete?: () => void;
}

export interface UploadParts {
  readonly watches: OpenWatches;
  readonly newId: () => string;
}

export async function receive(upload: Upload, parts: UploadParts): Promise<void> {
  const { place } = upload;
  await onPath(place.path, async () => {
    await makeDirectoriesFor(dirname(place.real), upload.owner, parts.watches);
    const mode = await prepare(upload);
    const temporary = await openTemporary(place.real, mode !== undefined, parts.newId());
    try {
      await fill(temporary, upload, mode);
      const change = await parts.watches.begin([place.real]);
      try {
        if (temporary.isBeside) await put(temporary.path, upload);
        else await overwrite(temporary.path, upload);
      } finally {
        await change.told();
      }
    } finally {
      await rm(temporary.path, { force: true });
    }
  });
}

export async function makeDirectoriesFor(
  directory: string,
  owner: Owner | undefined,
  watches: OpenWatches,
): Promise<void> {
  const missing = await missingDirectories(directory);
  const change = await watches.begin(missing);
  try {
    await makeDirectories(missing, owner);
  } finally {
    await change.told();
  }
}

/** Looks at what is there. Gives the mode that the new file inherits. */
async function prepare({ place, expectedBytes }: Upload): Promise<number | undefined> {
  const existing = await stat(place.real).catch(() => undefined);
  if (existing?.isDirectory()) throw new TorporError('invalid_request', `${place.path} is a directory.`);
  if (existing !== undefined && !existing.isFile()) {
    throw new TorporError('invalid_request', `${place.path} is not a regular file.`);
  }
  // A rename would ask only the directory, but this is a write to the file.
  if (existing !== undefined) await access(place.real, constants.W_OK);
  const { blocks, bavail, bsize } = await statfs(dirname(place.real));
  // Filesystems of the kernel have no blocks, and no bound.
  if (expectedBytes !== undefined && blocks > 0 && expectedBytes > bavail * bsize) {
    const room = `${expectedBytes} bytes do not fit, ${bavail * bsize} are free`;
    throw new TorporError('storage_full', `${place.path} cannot be written: not enough disk space, ${room}.`);
  }
  return existing === undefined ? undefined : existing.mode & 0o7777;
}

interface Temporary {
  readonly path: string;
  readonly file: FileHandle;
  readonly isBeside: boolean;
}

/** A directory that takes no new files: it is somebody else's, read-only, or the kernel's own. */
const TAKES_NONE: ReadonlySet<string | undefined> = new Set(['EACCES', 'EPERM', 'EROFS', 'ENOENT']);

/** Beside the target, or where temporary files go when the target is there and its directory takes no new ones. */
async function openTemporary(target: string, targetExists: boolean, id: string): Promise<Temporary> {
  const beside = join(dirname(target), uploadName(id));
  try {
    return { path: beside, file: await open(beside, 'wx'), isBeside: true };
  } catch (thrown) {
    if (!targetExists || !TAKES_NONE.has(errnoOf(thrown))) throw thrown;
    const elsewhere = join(tmpdir(), uploadName(id));
    return { path: elsewhere, file: await open(elsewhere, 'wx', 0o600), isBeside: false };
  }
}

async function fill(
  { file, isBeside }: Temporary,
  { content, owner, checkComplete }: Upload,
  mode: number | undefined,
): Promise<void> {
  try {
    await file.writeFile(content);
    checkComplete?.();
    if (!isBeside) return;
    if (mode !== undefined) await file.chmod(mode);
    // Last, because it takes the bits away that would let others act as the new owner.
    if (owner !== undefined) await file.chown(owner.uid, owner.gid);
  } finally {
    await file.close();
  }
}

async function put(temporary: string, upload: Upload): Promise<void> {
  try {
    await rename(temporary, upload.place.real);
  } catch (thrown) {
    // A mount point: its content is all we can replace.
    if (errnoOf(thrown) !== 'EBUSY') throw thrown;
    await overwrite(temporary, upload);
  }
}

/** Not by `copyFile`, which changes the mode of its target: files of the kernel do not let it. */
async function overwrite(temporary: string, { place, owner }: Upload): Promise<void> {
  await pipeline(createReadStream(temporary), createWriteStream(place.real));
  if (owner === undefined) return;
  await chown(place.real, owner.uid, owner.gid).catch((thrown) => {
    // Files of the kernel belong to whom they belong.
    if (!TAKES_NONE.has(errnoOf(thrown))) throw thrown;
  });
}
