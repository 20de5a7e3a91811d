/** `torpor destroy`: removes a data directory and everything that its sandboxes left on this machine. */
import { readdir, readFile, realpath, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { claimDataDirectory, openPostgres, openSqlite } from '@torpor/database';
import type { Queryable } from '@torpor/engine';
import { exists, programOutput } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { cleanUpHost, mountsOnHost, runningContainers } from '@torpor/runtime-gvisor';

interface DestroyOptions {
  /** The address of a PostgreSQL database. Undefined: the embedded database. */
  readonly database?: string | undefined;
  /** Continues although the database says that sandboxes run, as after a reboot. Running processes still refuse it. */
  readonly force: boolean;
  readonly signal: AbortSignal;
}

/** Refuses and changes nothing unless this is a data directory that no server holds and no sandbox runs from. */
export async function destroyDataDirectory(dataDir: string, options: DestroyOptions): Promise<void> {
  const place = await requireDataDirectory(dataDir);
  const directory = await claimDataDirectory(place);
  try {
    await refuseWhileRunning(place, options);
    if (process.getuid?.() === 0) await cleanUpHost(place, options.signal);
    refuseMounts(place);
    // These files identify a data directory. They are removed last, so that an interrupted destroy can be repeated.
    const proofs = ['home', 'lock.db', 'lock.json'];
    const names = (await readdir(place)).filter((name) => !proofs.includes(name));
    await remove(names.map((name) => join(place, name)));
  } finally {
    await directory.release();
  }
  refuseMounts(place);
  await remove((await readdir(place)).map((name) => join(place, name)));
  // The directory may be the mount point of a disk; a mount point stays.
  if (!mountsOnHost(place).includes(place)) await rmdir(place);
}

/** The real path of the directory. Throws when it lacks the files that every server writes. */
export async function requireDataDirectory(dataDir: string): Promise<string> {
  const home = await readFile(join(dataDir, 'home'), 'utf8').catch(() => '');
  const hasLock = await exists(join(dataDir, 'lock.db'));
  if (/^[0-9a-f]{32}\s*$/.test(home) && hasLock) return realpath(dataDir);
  throw new TorporError('invalid_request', `${dataDir} is not a data directory of Torpor.`, {
    hint: 'Name the directory that the server was started with (--data-dir).',
    details: { path: dataDir },
  });
}

async function refuseWhileRunning(place: string, { database, force }: DestroyOptions): Promise<void> {
  const containers = await runningContainers(place);
  if (containers.length > 0) throw stillRunning(containers, 'a process on this machine');
  const recorded = force ? [] : await recordedAsRunning(place, database);
  if (recorded.length > 0) throw stillRunning(recorded, 'the state of a running sandbox in the database');
}

function stillRunning(names: readonly string[], why: string): TorporError {
  const shown = names.slice(0, 10).join(', ');
  return new TorporError('in_use', `${names.length} sandboxes have ${why}: ${shown}.`, {
    hint: 'Start the server with this data directory, then run `torpor down`. It pauses every sandbox.',
    details: { names: shown },
  });
}

async function recordedAsRunning(place: string, database: string | undefined): Promise<string[]> {
  const path = join(place, 'torpor.db');
  if (database === undefined && !(await exists(path))) return [];
  const db = database === undefined ? await openSqlite({ path }) : await openPostgres({ url: database });
  try {
    return await sandboxesNotAtRest(db);
  } finally {
    await db.close();
  }
}

/** Needs no lock: this process has claimed the data directory, so no server changes these rows. */
async function sandboxesNotAtRest(db: Queryable): Promise<string[]> {
  const rows = await db.query<{ id: string }>(
    "SELECT id FROM sandboxes WHERE state NOT IN ('paused', 'killed', 'failed', 'lost') ORDER BY id",
  );
  return rows.map(({ id }) => id);
}

function refuseMounts(place: string): void {
  const [mount] = mountsOnHost(place).filter((at) => at !== place);
  if (mount === undefined) return;
  throw new TorporError('conflict', `Something is mounted at ${mount}. Nothing is deleted through a mount.`, {
    hint: `Unmount it first: umount ${mount}`,
    details: { mount },
  });
}

/** Does not cross into another file system, in case something is mounted meanwhile. */
async function remove(paths: readonly string[]): Promise<void> {
  if (paths.length > 0) await programOutput('rm', ['-rf', '--one-file-system', '--', ...paths]);
}
