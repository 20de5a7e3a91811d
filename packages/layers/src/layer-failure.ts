/**
 * Turns failures into typed errors about a layer. A failed call of this process is judged by its errno. A failed program is
 * judged by the free space of the disk afterwards, because its messages are not a stable format.
 */
import { statfs } from 'node:fs/promises';
import { DAMAGE_BY_ERRNO } from '@torpor/engine';
import { errnoOf, ProgramFailure } from '@torpor/host';
import { type ErrorCode, TorporError } from '@torpor/protocol';
import type { LayerId } from './layer-id.ts';

/** The layer or entry that a call works on, for the details of its error. */
export interface Place {
  readonly layerId: LayerId;
  readonly path: string;
  /** The entry of the layer at fault. */
  readonly entry?: string;
}

const WHEN_WRITING: Readonly<Record<string, ErrorCode>> = {
  ENOSPC: 'storage_full',
  EDQUOT: 'storage_full',
  EROFS: 'storage_readonly',
};

/** With less free space than this, a program that failed to write counts as failed for lack of space. */
const NO_ROOM_BYTES = 1024 * 1024;

export function missing(place: Place, cause?: unknown): TorporError {
  return failure('checkpoint_missing', `${subject(place)} is not there.`, place, cause);
}

export function corrupt(place: Place, how: string, cause?: unknown): TorporError {
  return failure('checkpoint_corrupt', `${subject(place)} ${how}.`, place, cause);
}

export function unreadable(place: Place, why: string, cause?: unknown): TorporError {
  return failure('checkpoint_unreadable', `${subject(place)} could not be read: ${why}.`, place, cause);
}

export function conflict(place: Place, how: string, cause?: unknown): TorporError {
  return failure('conflict', `${subject(place)} ${how}.`, place, cause);
}

/** Maps the errors of a call that reads a sealed layer. Only an absent entry and an entry of the wrong type prove damage. */
export async function mapReadErrors<T>(place: Place, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    if (thrown instanceof ProgramFailure) throw unreadable(place, thrown.message, thrown);
    const errno = errnoOf(thrown);
    if (errno === undefined) throw thrown;
    if (DAMAGE_BY_ERRNO[errno] === 'checkpoint_missing') throw missing(place, thrown);
    if (DAMAGE_BY_ERRNO[errno] === 'checkpoint_corrupt') throw corrupt(place, 'is of another kind', thrown);
    throw unreadable(place, errno, thrown);
  }
}

/** Maps the errors of work that writes to the disk of the layer. */
export async function mapWriteErrors<T>(place: Place, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    const errno = thrown instanceof ProgramFailure ? await whyOf(place) : errnoOf(thrown);
    if (errno === undefined) throw thrown;
    const code = WHEN_WRITING[errno] ?? 'checkpoint_unreadable';
    const cause = thrown instanceof ProgramFailure ? thrown.message : errno;
    throw failure(code, `${subject(place)} could not be written: ${cause}.`, place, thrown);
  }
}

/** Why a program could not write, as far as the disk shows it. */
async function whyOf({ path }: Place): Promise<string> {
  const disk = await statfs(path).catch(() => undefined);
  const isFull = disk !== undefined && (disk.bavail * disk.bsize < NO_ROOM_BYTES || disk.ffree === 0);
  return isFull ? 'ENOSPC' : 'EIO';
}

function subject({ layerId, entry }: Place): string {
  return entry === undefined ? `Layer ${layerId}` : `${JSON.stringify(entry)} of layer ${layerId}`;
}

function failure(code: ErrorCode, message: string, place: Place, cause: unknown): TorporError {
  return new TorporError(code, message, { details: { ...place }, cause });
}
