/**
 * `torpor restore`: makes a data directory from a backup.
 *
 * A file `restoring` lies in the directory until everything is there and proved. A server does not start from a directory
 * that has it, and the next restore begins anew.
 */
import { access, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import {
  copyCheckpoint,
  copyProgram,
  copyTree,
  digestOf,
  notAsSaved,
  storeAt,
  syncFileSystem,
  unpackLayer,
} from '@torpor/checkpoint-store';
import { claimDataDirectory } from '@torpor/database';
import { isMissing } from '@torpor/host';
import { type ErrorCode, TorporError } from '@torpor/protocol';
import { type BackupRecord, readBackupRecord } from './backup-record.ts';

const RESTORING = 'restoring';

export interface RestoreOptions {
  readonly progress: (words: string) => void;
  readonly signal: AbortSignal;
}

export interface RestoreResult {
  readonly dataDir: string;
  readonly database: BackupRecord['database'];
  /** For `pg_restore`, when the backup has a dump of PostgreSQL. */
  readonly dump: string | null;
  readonly checkpoints: number;
  readonly layers: number;
}

/** Into a data directory that is absent or empty, or that a restore left unfinished. */
export async function restoreDataDirectory(
  backup: string,
  dataDir: string,
  options: RestoreOptions,
): Promise<RestoreResult> {
  const from = resolve(backup);
  const place = resolve(dataDir);
  const record = await readBackupRecord(from);
  await prepare(place);
  await writeFile(join(place, 'home'), `${record.home}\n`, { mode: 0o600 });
  const claim = await claimDataDirectory(place);
  try {
    await restore(record, from, place, options);
  } finally {
    await claim.release();
  }
  await rm(join(place, RESTORING));
  await syncFileSystem(place);
  const { database, checkpoints, layers } = record;
  const dump = database === 'postgres' ? join(from, 'database.dump') : null;
  return { dataDir: place, database, dump, checkpoints: checkpoints.length, layers: layers.length };
}

/** For the start of a server. */
export async function refuseUnfinishedRestore(dataDir: string): Promise<void> {
  const isUnfinished = await access(join(dataDir, RESTORING)).then(
    () => true,
    () => false,
  );
  if (!isUnfinished) return;
  throw new TorporError('conflict', `A restore of ${dataDir} did not end.`, {
    hint: 'Run `torpor restore` again: it begins anew.',
    details: { path: dataDir },
  });
}

async function prepare(place: string): Promise<void> {
  await mkdir(place, { recursive: true, mode: 0o700 });
  const names = await readdir(place);
  if (names.length > 0 && !names.includes(RESTORING)) {
    throw new TorporError('conflict', `${place} is not empty.`, {
      hint: 'Restore into a directory that is not there yet, and move the old one away first.',
      details: { path: place },
    });
  }
  // The mark is written last, so that this directory is never taken for the data directory of a server.
  for (const name of names) if (name !== RESTORING) await rm(join(place, name), { recursive: true });
  await writeFile(join(place, RESTORING), '', { mode: 0o600, flush: true });
}

async function restore(
  record: BackupRecord,
  from: string,
  place: string,
  { progress, signal }: RestoreOptions,
): Promise<void> {
  const source = await storeAt(join(from, 'checkpoints'));
  const target = await storeAt(join(place, 'checkpoints'));
  const { layers } = target.store.layerStore;
  for (const [index, { id, ...saved }] of record.layers.entries()) {
    signal.throwIfAborted();
    progress(`Unpacking layer ${id} (${index + 1} of ${record.layers.length})…`);
    await unpackLayer(layers, id, source.root, saved, signal);
  }
  progress('Copying programs…');
  for (const program of record.programs) {
    signal.throwIfAborted();
    await copyProgram(program, source, target, signal).catch((thrown: unknown) => {
      if (!(thrown instanceof TorporError) || !isDamage(thrown.code)) throw thrown;
      throw notAsSaved(source.store.layerStore.programs.path(program));
    });
  }
  for (const [index, id] of record.checkpoints.entries()) {
    signal.throwIfAborted();
    progress(`Copying checkpoint ${id} (${index + 1} of ${record.checkpoints.length})…`);
    await copyCheckpoint(id, source, target, signal);
    await target.store.inspect(id, signal);
  }
  progress('Copying the database and keys…');
  await restoreFiles(record, from, place, signal);
  progress('Waiting for the disk…');
  await syncFileSystem(place);
}

function isDamage(code: ErrorCode): boolean {
  return code === 'checkpoint_missing' || code === 'checkpoint_corrupt';
}

/** Each top directory at once, for its modes and times, and then every file against its digest. */
async function restoreFiles(
  { files }: BackupRecord,
  from: string,
  place: string,
  signal: AbortSignal,
): Promise<void> {
  const wanted = files.filter(({ path }) => path !== 'home' && path !== 'database.dump');
  const tops = new Set(wanted.map(({ path }) => topOf(path)));
  for (const top of tops) {
    await mkdir(join(place, dirname(top)), { recursive: true, mode: 0o700 });
    await copyTree(join(from, top), join(place, top), signal);
  }
  for (const { path, bytes, sha256 } of wanted) {
    signal.throwIfAborted();
    const found = await digestOf(join(place, path)).catch((thrown: unknown) => {
      throw isMissing(thrown) ? notAsSaved(join(from, path)) : thrown;
    });
    if (found.bytes !== bytes || found.sha256 !== sha256) throw notAsSaved(join(from, path));
  }
}

/** `gvisor/guest` of everything below it, in backups of version 1: `gvisor` itself has places that are not in a backup. */
function topOf(path: string): string {
  const [first = '', second = ''] = path.split('/');
  return first === 'gvisor' ? join(first, second) : first;
}
