/**
 * `torpor backup`: saves a data directory while its server runs.
 *
 * 1. The store is held: from here on no sealed checkpoint is removed.
 * 2. The database is copied as of one moment.
 * 3. Every sealed checkpoint of the store is copied, with the layers and programs that it needs. Checkpoints never change, and
 *    those that the copied database names are there because of the hold. Checkpoints that it does not know are removed after
 *    a restore.
 *
 * Running sandboxes are saved as of their last checkpoint.
 */
import { access, chmod, mkdir, readdir, readFile, realpath } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { copyTree, digestOf, hasEarlierLayout, holdStore, syncFileSystem } from '@torpor/checkpoint-store';
import { claimDataDirectory, snapshotSqlite } from '@torpor/database';
import { isMissing, ProgramFailure, programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import manifest from '../../package.json' with { type: 'json' };
import { requireDataDirectory } from '../destroy.ts';
import { DATA_KEY } from '../store/open-replicas.ts';
import { type BackupRecord, writeBackupRecord } from './backup-record.ts';
import { dataKeysNotSaved } from './data-keys-not-saved.ts';
import { needsClusterSecret } from './needs-cluster-secret.ts';
import { missingFromStore, saveCheckpoints, type UnsavedCheckpoint } from './save-checkpoints.ts';

export interface BackupOptions {
  /** The address of a PostgreSQL database; the embedded one when absent. */
  readonly database?: string | undefined;
  /** False leaves a PostgreSQL database out, for an operator who saves it in another way. */
  readonly withDatabase: boolean;
  /** Told what is being done, in a few words for people. */
  readonly progress: (words: string) => void;
  readonly signal: AbortSignal;
}

export interface BackupResult {
  readonly directory: string;
  readonly database: BackupRecord['database'];
  readonly checkpoints: number;
  readonly layers: number;
  readonly bytes: number;
  /** The secrets in the backup, which a restore needs. */
  readonly secrets: readonly string[];
  /** The data keys of the store that are not in the backup, because their file is not in the data directory. */
  readonly missingDataKeys: readonly string[];
  /** Whether a restore needs TORPOR_CLUSTER_SECRET, which is in no backup. */
  readonly needsClusterSecret: boolean;
  /** Damaged or missing in the store. Everything else is saved. */
  readonly unsaved: readonly UnsavedCheckpoint[];
}

/** What lies beside the store and is needed by a restored server. */
const BESIDES = ['home', 'secret', 'api-key', 'tls', DATA_KEY];
/** Of these, what a restored server cannot make again. */
const SECRETS = ['secret', 'api-key', 'tls', DATA_KEY];

/** Into a directory that is absent or empty. */
export async function backUpDataDirectory(
  dataDir: string,
  directory: string,
  options: BackupOptions,
): Promise<BackupResult> {
  const place = await requireDataDirectory(dataDir);
  refuseInside(place, directory);
  await makeEmptyDirectory(directory);
  const into = await realpath(directory);
  // Where no server runs, none may start and change the layout meanwhile. A running server has done that already.
  const claim = await claimUnlessServed(place);
  try {
    if (await hasEarlierLayout(place)) throw ofEarlierVersion(place);
    const root = join(place, 'checkpoints');
    const hold = await holdStore(root);
    try {
      const result = await save(place, into, options);
      hold.assertHeld();
      await writeBackupRecord(into, result.record);
      return result.result;
    } finally {
      await hold.release();
    }
  } finally {
    await claim?.release();
  }
}

async function save(
  place: string,
  into: string,
  options: BackupOptions,
): Promise<{ readonly record: BackupRecord; readonly result: BackupResult }> {
  const { progress, signal } = options;
  progress('Saving the database…');
  const database = await saveDatabase(place, into, options);
  const saved = await saveCheckpoints(join(place, 'checkpoints'), join(into, 'checkpoints'), options);
  const missing = await missingFromStore(into, options.database, saved);
  progress('Saving keys…');
  for (const name of BESIDES) await saveBeside(place, into, name, signal);
  const missingDataKeys = await dataKeysNotSaved(into, options.database);
  const clusterSecret = await needsClusterSecret(options.database);
  progress('Reading what was saved…');
  const files = await digestsOf(into, signal);
  progress('Waiting for the disk…');
  await syncFileSystem(into);
  const home = (await readFile(join(place, 'home'), 'utf8')).trim();
  const { checkpoints, layers, programs } = saved;
  const about = { version: 2, torpor: manifest.version, createdAt: Date.now(), home, database } as const;
  const bytes = [...layers, ...files].reduce((sum, file) => sum + file.bytes, 0) + saved.bytes;
  return {
    record: { ...about, checkpoints, layers, programs, files },
    result: {
      directory: into,
      database,
      checkpoints: checkpoints.length,
      layers: layers.length,
      bytes,
      secrets: SECRETS.filter((name) => files.some(({ path }) => path.split('/')[0] === name)),
      missingDataKeys,
      needsClusterSecret: clusterSecret,
      unsaved: [...saved.unsaved, ...missing],
    },
  };
}

async function saveDatabase(
  place: string,
  into: string,
  { database, withDatabase, signal }: BackupOptions,
): Promise<BackupRecord['database']> {
  if (database === undefined) {
    const path = join(into, 'torpor.db');
    snapshotSqlite(join(place, 'torpor.db'), path);
    await chmod(path, 0o600);
    return 'sqlite';
  }
  if (!withDatabase) return 'none';
  const dump = join(into, 'database.dump');
  await dumpPostgres(database, dump, signal);
  await chmod(dump, 0o600);
  return 'postgres';
}

/** The password is not among the arguments, which every user of the machine can read. */
async function dumpPostgres(database: string, file: string, signal: AbortSignal): Promise<void> {
  const url = new URL(database);
  const password = decodeURIComponent(url.password);
  url.password = '';
  const args = ['--format=custom', '--no-password', `--file=${file}`, `--dbname=${url.href}`];
  try {
    await programOutput('pg_dump', args, {
      signal,
      env: password === '' ? {} : { PGPASSWORD: password },
      missingHint:
        'Install the client programs of PostgreSQL, or save the database yourself and add --no-database.',
    });
  } catch (thrown) {
    if (!(thrown instanceof ProgramFailure)) throw thrown;
    throw new TorporError('unreachable', `The database could not be saved: ${thrown.stderr}`, {
      cause: thrown,
    });
  }
}

async function saveBeside(place: string, into: string, name: string, signal: AbortSignal): Promise<void> {
  const from = join(place, name);
  const isThere = await access(from).then(
    () => true,
    (thrown: unknown) => {
      if (isMissing(thrown)) return false;
      throw thrown;
    },
  );
  if (!isThere) return;
  await mkdir(join(into, name, '..'), { recursive: true, mode: 0o700 });
  await copyTree(from, join(into, name), signal);
}

/** Of every file but those of the checkpoint store, which has digests of its own. */
async function digestsOf(into: string, signal: AbortSignal): Promise<BackupRecord['files']> {
  const files: BackupRecord['files'] = [];
  const walk = async (directory: string): Promise<void> => {
    for (const entry of await readdir(directory, { withFileTypes: true })) {
      signal.throwIfAborted();
      const path = join(directory, entry.name);
      if (path === join(into, 'checkpoints')) continue;
      if (entry.isDirectory()) await walk(path);
      else if (entry.isFile()) files.push({ path: relative(into, path), ...(await digestOf(path)) });
    }
  };
  await walk(into);
  return files;
}

async function claimUnlessServed(place: string) {
  return claimDataDirectory(place).catch((thrown: unknown) => {
    if (thrown instanceof TorporError && thrown.code === 'in_use') return undefined;
    throw thrown;
  });
}

async function makeEmptyDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  if ((await readdir(directory)).length === 0) return;
  throw new TorporError('conflict', `${directory} is not empty.`, {
    hint: 'Name a directory that is not there yet.',
    details: { path: directory },
  });
}

function refuseInside(place: string, into: string): void {
  if (into !== place && !into.startsWith(`${place}/`)) return;
  throw new TorporError('invalid_request', `${into} lies in the data directory that is to be saved.`, {
    hint: 'Name a directory elsewhere, best on another disk.',
    details: { path: into },
  });
}

function ofEarlierVersion(place: string): TorporError {
  return new TorporError('conflict', `${place} was last used by an earlier version of Torpor.`, {
    hint: 'Start this version on it once (`torpor up`): it brings the directory up to date. Then save it.',
    details: { path: place },
  });
}
