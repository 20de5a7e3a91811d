/**
 * Writing a file that arrives over the wire: first whole under a name of its own beside the target, then
 * in its place by one rename. Whoever reads sees the old file or the new one, and an upload that breaks
 * off leaves nothing.
 */
import { createWriteStream } from 'node:fs';
import { access, chmod, constants, copyFile, mkdir, rename, rm, stat, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { TorporError } from '@torpor/protocol';
import { errnoOf, onPath } from './agent-failures.ts';
import type { Place } from './paths.ts';
import { uploadName } from './upload-names.ts';

export interface Upload {
  readonly place: Place;
  readonly content: Readable;
  /** Known only when the client said so. */
  readonly expectedBytes?: number | undefined;
  /** Throws when what seemed to be the end of the content was only the end of the connection. */
  readonly checkComplete?: () => void;
}

export async function receive(upload: Upload, newId: () => string): Promise<void> {
  const { place } = upload;
  const mode = await onPath(place.path, () => prepare(upload));
  await onPath(place.path, async () => {
    const temporary = await temporaryFor(place.real, newId());
    try {
      await pipeline(upload.content, createWriteStream(temporary, { flags: 'wx' }));
      upload.checkComplete?.();
      if (mode !== undefined) await chmod(temporary, mode);
      if (dirname(temporary) === dirname(place.real)) await put(temporary, place.real);
      else await copyFile(temporary, place.real);
    } finally {
      await rm(temporary, { force: true });
    }
  });
}

/** Makes the directories above and looks at what is there. Gives the rights that the new file inherits. */
async function prepare({ place, expectedBytes }: Upload): Promise<number | undefined> {
  await mkdir(dirname(place.real), { recursive: true });
  const existing = await stat(place.real).catch(() => undefined);
  if (existing?.isDirectory()) throw new TorporError('invalid_request', `${place.path} is a directory.`);
  if (existing !== undefined && !existing.isFile()) {
    throw new TorporError('invalid_request', `${place.path} is not a regular file.`);
  }
  // A rename would ask only the directory, but this is a write to the file.
  if (existing !== undefined) await access(place.real, constants.W_OK);
  const { bavail, bsize } = await statfs(dirname(place.real));
  if (expectedBytes !== undefined && expectedBytes > bavail * bsize) {
    const room = `${expectedBytes} bytes do not fit, ${bavail * bsize} are free`;
    throw new TorporError('storage_full', `${place.path} cannot be written: not enough disk space, ${room}.`);
  }
  return existing === undefined ? undefined : existing.mode & 0o7777;
}

/** Beside the target, or where temporary files go when the directory takes no new ones. */
async function temporaryFor(target: string, id: string): Promise<string> {
  const beside = await access(dirname(target), constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
  const targetExists =
    beside ||
    (await stat(target).then(
      () => true,
      () => false,
    ));
  return join(beside || !targetExists ? dirname(target) : tmpdir(), uploadName(id));
}

async function put(temporary: string, target: string): Promise<void> {
  try {
    await rename(temporary, target);
  } catch (thrown) {
    // A mount point: its content is all we can replace.
    if (errnoOf(thrown) !== 'EBUSY') throw thrown;
    await copyFile(temporary, target);
  }
}
