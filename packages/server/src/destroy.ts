/** `torpor destroy`: removes a data directory, with everything that its sandboxes have left on this machine. */
import { execFile } from 'node:child_process';
import { access, readdir, readFile, realpath, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { claimDataDirectory, openPostgres, openSqlite } from '@torpor/database';
import type { Queryable } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { cleanUpHost, mountsOnHost, runningContainers } from '@torpor/runtime-gvisor';

const run = promisify(execFile);

interface DestroyOptions {
  /** The address of a PostgreSQL database; the embedded one when absent. */
  readonly database?: string | undefined;
  /** Goes on when the records say that sandboxes run, as after a restart of the machine. Processes still refuse it. */
  readonly force: boolean;
  readonly signal: AbortSignal;
}

/** Refuses, and changes nothing, unless this is a data directory that no server holds and nothing runs from. */
export async function destroyDataDirectory(dataDir: string, options: DestroyOptions): Promise<void> {
  const place = await requireDataDirectory(dataDir);
  const directory = await claimDataDirectory(place);
  try {
    await refuseWhileRunning(place, options);
    if (process.getuid?.() === 0) await cleanUpHost(place, options.signal);
    refuseMounts(place);
    // These prove what the directory is, so that a destroy that was broken off can be repeated.
    const proofs = ['home', 'lock.db', 'lock.json'];
    const names = (await readdir(place)).filter((name) => !proofs.includes(name));
    await remove(names.map((name) => join(place, name)));
  } finally {
    await directory.release();
  }
  refuseMounts(place);
  await remove((await readdir(place)).map((name) => join(place, name)));
  // The directory may be the mount point of a disk of its own, which stays.
  if (!mountsOnHost(place).includes(place)) await rmdir(place);
}

/** The real path, if every server leaves there what is there. */
export async function requireDataDirectory(dataDir: string): Promise<string> {
  const home = await readFile(join(dataDir, 'home'), 'utf8').catch(() => '');
  const hasLock = await isThere(join(dataDir, 'lock.db'));
  if (/^[0-9a-f]{32}\s*$/.test(home) && hasLock) return realpath(dataDir);
  throw new TorporError('invalid_request', `${dataDir} is not a data directory of Torpor.`, {
    hint: 'Name the directory that the server was started with (--data-dir).',
    details: { path: dataDir },
  });
}

async function refuseWhileRunning(place: string, { database, force }: DestroyOptions): Promise<void> {
  const containers = await runningContainers(place);
  if (containers.length > 0) throw running(containers, 'a process on this machine');
  const recorded = force ? [] : await recordedAsRunning(place, database);
  if (recorded.length > 0) throw running(recorded, 'the state of a running sandbox in the database');
}

function running(names: readonly string[], why: string): TorporError {
  const shown = names.slice(0, 10).join(', ');
  return new TorporError('in_use', `${names.length} sandboxes have ${why}: ${shown}.`, {
    hint: 'Start the server with this data directory and run `torpor down`, which puts everything to sleep.',
    details: { names: shown },
  });
}

async function recordedAsRunning(place: string, database: string | undefined): Promise<string[]> {
  const path = join(place, 'torpor.db');
  if (database === undefined && !(await isThere(path))) return [];
  const db = database === undefined ? await openSqlite({ path }) : await openPostgres({ url: database });
  try {
    return await sandboxesNotAtRest(db);
  } finally {
    await db.close();
  }
}

/** Without a lock: the data directory is claimed, so no server changes these rows. */
async function sandboxesNotAtRest(db: Queryable): Promise<string[]> {
  const rows = await db.query<{ id: string }>(
    "SELECT id FROM sandboxes WHERE state NOT IN ('paused', 'killed', 'failed', 'lost') ORDER BY id",
  );
  return rows.map(({ id }) => id);
}

function refuseMounts(place: string): void {
  const [mount] = mountsOnHost(place).filter((at) => at !== place);
  if (mount === undefined) return;
  throw new TorporError('conflict', `Something is mounted at ${mount}, and nothing is deleted through it.`, {
    hint: `Unmount it first: umount ${mount}`,
    details: { mount },
  });
}

/** Stays on the file system of each path, should something be mounted meanwhile. */
async function remove(paths: readonly string[]): Promise<void> {
  if (paths.length > 0) await run('rm', ['-rf', '--one-file-system', '--', ...paths]);
}

function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
