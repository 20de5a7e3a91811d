/**
 * `torpor backup`: saves a data directory while its server runs.
 *
 * 1. The store is held: from here on no sealed checkpoint is removed.
 * 2. The database is copied as of one moment.
 * 3. Every sealed checkpoint of the store is copied, with the layers that it needs. Checkpoints never change, and those that
 *    the copied database names are there because of the hold. Checkpoints that it does not know are removed after a restore.
 *
 * Running sandboxes are saved as of their last checkpoint.
 */
import { access, chmod, mkdir, readdir, readFile, realpath } from 'node:fs/promises';
import { join, relative } from 'node:path';
import {
  copyCheckpoint,
  copyTree,
  digestOf,
  holdStore,
  isOfVersion1,
  packLayer,
  storeAt,
  syncFileSystem,
} from '@torpor/checkpoint-store';
import { claimDataDirectory, openPostgres, openSqlite, snapshotSqlite } from '@torpor/database';
import { isMissing, ProgramFailure, programOutput } from '@torpor/host';
import { type CheckpointId, TorporError } from '@torpor/protocol';
import manifest from '../../package.json' with { type: 'json' };
import { requireDataDirectory } from '../destroy.ts';
import { type BackupRecord, writeBackupRecord } from './backup-record.ts';

export interface BackupOptions {
  /** The address of a PostgreSQL database; the embedded one when absent. */
  readonly database?: string | undefined;
  /** False leaves a PostgreSQL database out, for an operator who saves it in another way. */
  readonly withDatabase: boolean;
  /** Told what is being done, in a few words for people. */
  readonly progress: (words: string) => void;
  readonly signal: AbortSignal;
}

/** A checkpoint that is not in the backup, and why. */
interface UnsavedCheckpoint {
  readonly id: CheckpointId;
  readonly code: string;
  readonly message: string;
}

export interface BackupResult {
  readonly directory: string;
  readonly database: BackupRecord['database'];
  readonly checkpoints: number;
  readonly layers: number;
  readonly bytes: number;
  /** Damaged or missing in the store. Everything else is saved. */
  readonly unsaved: readonly UnsavedCheckpoint[];
}

/** What lies beside the store and is needed by a restored server. Memory images need the programs and tools of gVisor. */
const BESIDES = ['home', 'secret', 'api-key', 'tls', 'gvisor/runsc', 'gvisor/guest'];

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
    if (await isOfVersion1(place)) throw ofVersion1(place);
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
  const missing = await missingFromStore(into, options, saved);
  progress('Saving keys, programs and tools…');
  for (const name of BESIDES) await saveBeside(place, into, name, signal);
  progress('Reading what was saved…');
  const files = await digestsOf(into, signal);
  progress('Waiting for the disk…');
  await syncFileSystem(into);
  const home = (await readFile(join(place, 'home'), 'utf8')).trim();
  const { checkpoints, layers } = saved;
  const about = { version: 1, torpor: manifest.version, createdAt: Date.now(), home, database } as const;
  const bytes = [...layers, ...files].reduce((sum, file) => sum + file.bytes, 0) + saved.bytes;
  return {
    record: { ...about, checkpoints, layers, files },
    result: {
      directory: into,
      database,
      checkpoints: checkpoints.length,
      layers: layers.length,
      bytes,
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

interface SavedCheckpoints {
  readonly checkpoints: CheckpointId[];
  readonly layers: BackupRecord['layers'];
  readonly unsaved: readonly UnsavedCheckpoint[];
  /** Of the content of all checkpoints. */
  readonly bytes: number;
}

async function saveCheckpoints(
  root: string,
  into: string,
  { progress, signal }: BackupOptions,
): Promise<SavedCheckpoints> {
  const [from, to] = [await storeAt(root), await storeAt(into)];
  const { store } = from;
  const ids: CheckpointId[] = [];
  for await (const { id, state } of store.list()) if (state === 'sealed') ids.push(id);
  const checkpoints: CheckpointId[] = [];
  const unsaved: UnsavedCheckpoint[] = [];
  const layers = new Map<string, BackupRecord['layers'][number]>();
  let bytes = 0;
  for (const [index, id] of ids.entries()) {
    signal.throwIfAborted();
    progress(`Saving checkpoint ${id} (${index + 1} of ${ids.length})…`);
    try {
      for (const layer of await copyCheckpoint(id, from, to, signal)) {
        if (layers.has(layer.id)) continue;
        const packed = await packLayer(store.layerStore.layers, layer.id, into, signal);
        layers.set(layer.id, { id: layer.id, ...packed });
      }
      bytes += (await store.read(id)).entries.reduce((sum, entry) => sum + entry.bytes, 0);
      checkpoints.push(id);
    } catch (thrown) {
      signal.throwIfAborted();
      // The room of the backup, and not the checkpoint, is the reason.
      if (!isOfCheckpoint(thrown)) throw thrown;
      unsaved.push({ id, code: thrown.code, message: thrown.message });
    }
  }
  return { checkpoints, layers: [...layers.values()], unsaved, bytes };
}

function isOfCheckpoint(thrown: unknown): thrown is TorporError {
  const codes = ['checkpoint_missing', 'checkpoint_corrupt', 'checkpoint_unreadable', 'version_unsupported'];
  return thrown instanceof TorporError && codes.includes(thrown.code);
}

/** Checkpoints that the database names and the store does not have. They were lost before this backup. */
async function missingFromStore(
  into: string,
  { database }: BackupOptions,
  { checkpoints, unsaved }: SavedCheckpoints,
): Promise<UnsavedCheckpoint[]> {
  const db =
    database === undefined
      ? await openSqlite({ path: join(into, 'torpor.db') })
      : await openPostgres({ url: database });
  try {
    const rows = await db.query<{ id: CheckpointId }>(
      "SELECT id FROM checkpoints WHERE state = 'sealed' AND external = 0 ORDER BY id",
    );
    const seen = new Set([...checkpoints, ...unsaved.map(({ id }) => id)]);
    return rows
      .filter(({ id }) => !seen.has(id))
      .map(({ id }) => ({ id, code: 'checkpoint_missing', message: `Checkpoint ${id} is not there.` }));
  } finally {
    await db.close();
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

function ofVersion1(place: string): TorporError {
  return new TorporError('conflict', `${place} was last used by an earlier version of Torpor.`, {
    hint: 'Start this version on it once (`torpor up`): it brings the directory up to date. Then save it.',
    details: { path: place },
  });
}
