/**
 * The data directory belongs to one process at a time.
 *
 * The lock is an exclusive transaction on `lock.db`. The kernel frees the lock when the process dies, also by kill -9; a
 * lock file or a socket would stay behind. `lock.json` names the process that holds the lock, for the error that a second
 * process gets. Nothing is decided by that file.
 *
 * The kernel also frees the lock when this process closes *any* of its handles on `lock.db`, so no other code may open
 * that file, not even to copy it.
 */
import { randomBytes } from 'node:crypto';
import { access, chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Clock, systemClock } from '@torpor/engine';
import { errnoOf, isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { fileError } from './file-error.ts';
import { sqliteError } from './sqlite-error.ts';

export interface DataDirectory {
  readonly path: string;
  /** Identifies the directory, wherever it is mounted. */
  readonly id: string;
  /** Frees the lock. The end of the process frees it too. */
  release(): Promise<void>;
}

interface Holder {
  readonly pid: number;
  readonly host: string;
  readonly startedAt: number;
}

/** `makeRoom` is called once the lock is held: the files that are written here must fit on a full disk too. */
export async function claimDataDirectory(
  path: string,
  clock: Clock = systemClock,
  makeRoom: () => Promise<unknown> = async () => {},
): Promise<DataDirectory> {
  await makeDirectory(path);
  const lock = await takeLock(path);
  let id: string;
  try {
    await makeRoom();
    // Written after the lock is taken, so that the file never names a process without the lock. The write also proves
    // that the directory is writable, which SQLite does not prove when `lock.db` exists already.
    await writeHolder(path, { pid: process.pid, host: hostname(), startedAt: clock.now() });
    id = await readOrCreateId(path);
  } catch (thrown) {
    lock.close();
    throw fileError(thrown, path);
  }
  return {
    path,
    id,
    release: async () => {
      if (!lock.isOpen) return;
      await rm(holderFile(path), { force: true }).catch(() => undefined);
      lock.close();
    },
  };
}

/** Like Node's `recursive`, except that it fails where no directory can be made, such as in /proc, instead of looping. */
async function makeWithParents(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (thrown) {
    if (errnoOf(thrown) === 'EEXIST') return;
    const parent = dirname(path);
    const orphan =
      isMissing(thrown) &&
      (await access(parent).then(
        () => false,
        () => true,
      ));
    if (!orphan || parent === path) throw thrown;
    await makeWithParents(parent);
    await mkdir(path, { mode: 0o700 });
  }
}

async function makeDirectory(path: string): Promise<void> {
  try {
    await makeWithParents(path);
    // The directory holds keys and files of users. No other user of this machine may read it, even if another user made it.
    await chmod(path, 0o700);
  } catch (thrown) {
    throw fileError(thrown, path);
  }
}

async function takeLock(path: string): Promise<DatabaseSync> {
  let lock: DatabaseSync | undefined;
  try {
    lock = new DatabaseSync(join(path, 'lock.db'), { timeout: 0 });
    lock.exec('BEGIN EXCLUSIVE');
    // A user who can read the file can lock it, and keep the next server from starting.
    await chmod(join(path, 'lock.db'), 0o600);
    return lock;
  } catch (thrown) {
    lock?.close();
    const error = sqliteError(thrown, path);
    throw error instanceof TorporError && error.code === 'in_use' ? await inUse(path, thrown) : error;
  }
}

async function inUse(path: string, cause: unknown): Promise<TorporError> {
  const holder = await readHolder(path);
  const who = holder === undefined ? 'another process' : describe(holder);
  return new TorporError('in_use', `The data directory ${path} is in use by ${who}.`, {
    details: { path, ...(holder === undefined ? {} : { pid: holder.pid, host: holder.host }) },
    cause,
  });
}

function describe({ pid, host, startedAt }: Holder): string {
  const where = host === hostname() ? '' : ` on ${host}`;
  return `process ${pid}${where}, which started at ${new Date(startedAt).toISOString()}`;
}

/** Undefined while the file still names a dead process: another process has the lock and has not written its name yet. */
async function readHolder(path: string): Promise<Holder | undefined> {
  try {
    const holder: unknown = JSON.parse(await readFile(holderFile(path), 'utf8'));
    if (!isHolder(holder)) return undefined;
    return holder.host !== hostname() || isAlive(holder.pid) ? holder : undefined;
  } catch {
    return undefined;
  }
}

function isHolder(value: unknown): value is Holder {
  const { pid, host, startedAt } = (value ?? {}) as Partial<Record<keyof Holder, unknown>>;
  return typeof pid === 'number' && typeof host === 'string' && typeof startedAt === 'number';
}

/** Written by renaming, so that a reader finds a whole file or none. */
async function writeHolder(path: string, holder: Holder): Promise<void> {
  const unfinished = `${holderFile(path)}.${holder.pid}`;
  await writeFile(unfinished, `${JSON.stringify(holder)}\n`, { mode: 0o600 });
  await rename(unfinished, holderFile(path));
}

function holderFile(path: string): string {
  return join(path, 'lock.json');
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    // EPERM: the process is alive and belongs to another user.
    return errnoOf(thrown) === 'EPERM';
  }
}

/** The id of the directory, created with it. A database records the id of the directory that its sandboxes are in. */
async function readOrCreateId(path: string): Promise<string> {
  const file = join(path, 'home');
  const known = await readFile(file, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return '';
    throw thrown;
  });
  if (known !== '') return known.trim();
  const id = randomBytes(16).toString('hex');
  // Written by renaming: another server must never read half of it.
  await writeFile(`${file}.new`, `${id}\n`, { mode: 0o600, flush: true });
  await rename(`${file}.new`, file);
  return id;
}
