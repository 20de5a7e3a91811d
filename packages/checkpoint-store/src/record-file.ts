/**
 * Reads the store's own JSON files. Size, syntax and version are checked before a value of the file is used.
 */
import { TorporError } from '@torpor/protocol';
import { corrupt, mapReadErrors, type Place } from './storage-error.ts';
import { READ_PLAIN, type StoreFs, withFile } from './store-fs.ts';

/** Reads a file that may not be larger than `limit`. The size is checked before the file is read into memory. */
export function readLimited(fs: StoreFs, path: string, limit: number, place: Place): Promise<Buffer> {
  return mapReadErrors(place, () =>
    withFile(fs, path, READ_PLAIN, async (file) => {
      const { size } = await file.stat();
      if (size > limit) throw corrupt(place, 'record');
      return file.readFile();
    }),
  );
}

export function parse(text: Buffer | string, place: Place): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text.toString());
  } catch (error) {
    throw corrupt(place, 'record', error);
  }
  if (typeof value !== 'object' || value === null) throw corrupt(place, 'record');
  return value as Record<string, unknown>;
}

export function refuseOtherVersions(record: Record<string, unknown>, place: Place, known = 1): void {
  if (record['version'] === known) return;
  if (typeof record['version'] !== 'number') throw corrupt(place, 'record');
  throw new TorporError('version_unsupported', `${place.record} is of version ${record['version']}.`, {
    ...(place.checkpointId === undefined ? {} : { checkpointId: place.checkpointId }),
    details: { location: place.location, record: place.record },
  });
}
