/**
 * What is in a backup, as `backup.json` says it. The file is written last: a directory without it is not a backup.
 *
 * ```
 * <backup>/backup.json     this record, with a checksum of itself
 *          torpor.db       the embedded database, or database.dump of PostgreSQL
 *          checkpoints/    a checkpoint store whose layers are packed, with the programs that its memory images need
 *          home, secret, api-key, tls/
 * ```
 *
 * Records of version 1 have no programs: these are among the other files, below `gvisor/`. The first server that starts on
 * the restored data directory moves them into the store.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checksummedRecord, PROGRAM_KINDS, unwrapChecksummed } from '@torpor/checkpoint-store';
import { isMissing, writeFileDurably } from '@torpor/host';
import { type CheckpointId, isId, TorporError } from '@torpor/protocol';
import { z } from 'zod';

const RECORD = 'backup.json';

const savedFile = { bytes: z.number(), sha256: z.string() };

const recordSchema = z.object({
  version: z.union([z.literal(1), z.literal(2)]),
  /** Of the Torpor that made the backup. */
  torpor: z.string(),
  createdAt: z.number(),
  /** The id of the data directory, to which its database belongs. */
  home: z.string(),
  database: z.enum(['sqlite', 'postgres', 'none']),
  checkpoints: z.array(z.custom<CheckpointId>((id) => isId('ckpt', String(id)))),
  layers: z.array(
    z.object({ id: z.custom<`lay_${string}`>((id) => String(id).startsWith('lay_')), ...savedFile }),
  ),
  programs: z
    .array(z.object({ kind: z.enum(PROGRAM_KINDS), digest: z.string().regex(/^[0-9a-f]{64}$/) }))
    .default([]),
  /** Every other file, relative to the backup. */
  files: z.array(z.object({ path: z.string(), ...savedFile })),
});

export type BackupRecord = z.infer<typeof recordSchema>;

export async function writeBackupRecord(directory: string, record: BackupRecord): Promise<void> {
  await writeFileDurably(join(directory, RECORD), checksummedRecord(record));
}

export async function readBackupRecord(directory: string): Promise<BackupRecord> {
  const path = join(directory, RECORD);
  const text = await readFile(path, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) throw notABackup(directory, thrown);
    throw thrown;
  });
  const json = unwrapChecksummed(text);
  const record = recordSchema.safeParse(json === undefined ? undefined : JSON.parse(json));
  if (record.success) return record.data;
  throw new TorporError('checkpoint_corrupt', `${path} is damaged, or a newer version wrote it.`, {
    hint: 'Use another backup, or the version of Torpor that made this one.',
    details: { path },
  });
}

function notABackup(directory: string, cause: unknown): TorporError {
  return new TorporError('invalid_request', `${directory} is not a finished backup.`, {
    hint: 'Name the directory that `torpor backup` wrote. A backup that was broken off has no backup.json.',
    details: { path: directory },
    cause,
  });
}
