/** A consistent copy of the embedded database, taken while a server uses it. */
import { DatabaseSync } from 'node:sqlite';
import { sqliteError } from './sqlite-error.ts';

/** How long the copy waits for a writer that holds the file at this moment. */
const BUSY_MS = 30_000;

/**
 * Writes the database as of one moment to a file that is not there yet. It reads in one transaction, so that it sees all of
 * a commit or nothing of it, and keeps no writer waiting. Blocks this process meanwhile.
 */
export function snapshotSqlite(path: string, into: string): void {
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(path, { timeout: BUSY_MS });
    db.prepare('VACUUM INTO ?').run(into);
  } catch (thrown) {
    throw sqliteError(thrown, path);
  } finally {
    db?.close();
  }
}
