/**
 * Writes an uploaded file: first completely into a temporary file beside the target, then by one rename into its place.
 * Readers see the old file or the new one, and an interrupted upload leaves nothing.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { access, chown, constants, type FileHandle, open, rename, rm, stat, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { TorporError } from '@torpor/protocol';
import type { OpenWatches } from '../watch/open-watches.ts';
import { errnoOf, withFileErrors } from './file-errors.ts';
import { makeDirectories, missingDirectories, type Owner } from './ownership.ts';
import type { ResolvedPath } from './paths.ts';
import { uploadName } from './upload-names.ts';

export interface Upload {
  readonly place: ResolvedPath;
  readonly content: Readable;
  /** Owner of the file, also of an existing one, and of the directories that are created for it. */
  readonly owner: Owner | undefined;
  /** From the Content-Length; undefined when the client did not send one. */
  readonly expectedBytes?: number | undefined;
  /** Throws when the content ended only because the connection was closed. */
  readonly checkComplete?: () => void;
}

export interface UploadParts {
  readonly watches: OpenWatches;
  readonly newId: () => string;
}

export async function receive(upload: Upload, parts: UploadParts): Promise<void> {
  const { place } = upload;
  await withFileErrors(place.path, async () => {
    await makeDirectoriesFor(dirname(place.real), upload.owner, parts.watches);
    const mode = await checkTarget(upload);
    const temporary = await openTemporary(place.real, mode !== undefined, parts.newId());
    try {
      await writeTemporary(temporary, upload, mode);
      const change = await parts.watches.begin([place.real]);
      try {
        if (temporary.isBeside) await moveIntoPlace(temporary.path, upload);
        else await overwrite(temporary.path, upload);
      } finally {
        await change.reported();
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
    await change.reported();
  }
}

/** Checks the existing file and the free space. Returns the mode that the new file inherits. */
async function checkTarget({ place, expectedBytes }: Upload): Promise<number | undefined> {
  const existing = await stat(place.real).catch(() => undefined);
  if (existing?.isDirectory()) throw new TorporError('invalid_request', `${place.path} is a directory.`);
  if (existing !== undefined && !existing.isFile()) {
    throw new TorporError('invalid_request', `${place.path} is not a regular file.`);
  }
  // A rename checks only the rights on the directory, but an upload is a write to the file.
  if (existing !== undefined) await access(place.real, constants.W_OK);
  const { blocks, bavail, bsize } = await statfs(dirname(place.real));
  // Filesystems such as /proc report no blocks and have no limit.
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

/** Errors of a directory in which no file can be created: another user's, read-only, or in /proc or /sys. */
const REFUSES_NEW_FILES: ReadonlySet<string | undefined> = new Set(['EACCES', 'EPERM', 'EROFS', 'ENOENT']);

/**
 * Beside the target, or in the system's temporary directory when the target exists in a directory that refuses files.
 */
async function openTemporary(target: string, targetExists: boolean, id: string): Promise<Temporary> {
  const beside = join(dirname(target), uploadName(id));
  try {
    return { path: beside, file: await open(beside, 'wx'), isBeside: true };
  } catch (thrown) {
    if (!targetExists || !REFUSES_NEW_FILES.has(errnoOf(thrown))) throw thrown;
    const elsewhere = join(tmpdir(), uploadName(id));
    return { path: elsewhere, file: await open(elsewhere, 'wx', 0o600), isBeside: false };
  }
}

async function writeTemporary(
  { file, isBeside }: Temporary,
  { content, owner, checkComplete }: Upload,
  mode: number | undefined,
): Promise<void> {
  try {
    await file.writeFile(content);
    checkComplete?.();
    if (!isBeside) return;
    if (mode !== undefined) await file.chmod(mode);
    // Last, because chown clears the setuid and setgid bits, which would let others act as the new owner.
    if (owner !== undefined) await file.chown(owner.uid, owner.gid);
  } finally {
    await file.close();
  }
}

async function moveIntoPlace(temporary: string, upload: Upload): Promise<void> {
  try {
    await rename(temporary, upload.place.real);
  } catch (thrown) {
    // A mount point cannot be replaced by a rename, only overwritten.
    if (errnoOf(thrown) !== 'EBUSY') throw thrown;
    await overwrite(temporary, upload);
  }
}

/** Does not use `copyFile`, which changes the mode of its target: files in /proc and /sys do not allow that. */
async function overwrite(temporary: string, { place, owner }: Upload): Promise<void> {
  await pipeline(createReadStream(temporary), createWriteStream(place.real));
  if (owner === undefined) return;
  await chown(place.real, owner.uid, owner.gid).catch((thrown) => {
    // The owner of files in /proc and /sys cannot be changed.
    if (!REFUSES_NEW_FILES.has(errnoOf(thrown))) throw thrown;
  });
}
