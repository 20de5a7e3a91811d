/** Whether the database of a backup holds secrets that only the cluster secret opens. That secret is in no backup. */
import { openPostgres } from '@torpor/database';

export async function needsClusterSecret(database: string | undefined): Promise<boolean> {
  // Nodes share a PostgreSQL database. A server with its own database has its secret in its data directory.
  if (database === undefined) return false;
  const db = await openPostgres({ url: database });
  try {
    return (await db.query('SELECT name FROM shared_secrets')).length > 0;
  } finally {
    await db.close();
  }
}
