/** Which data keys of the store a backup does not have. Without them the objects in the store cannot be read. */
import { join } from 'node:path';
import { openPostgres, openSqlite } from '@torpor/database';
import { readDataKeys } from '@torpor/object-store';
import { DATA_KEY } from '../store/open-replicas.ts';

export async function dataKeysNotSaved(into: string, database: string | undefined): Promise<string[]> {
  const saved = await readDataKeys(join(into, DATA_KEY));
  const db =
    database === undefined
      ? await openSqlite({ path: join(into, 'torpor.db') })
      : await openPostgres({ url: database });
  try {
    const rows = await db.query<{ key_id: string }>(
      "SELECT DISTINCT key_id FROM stored_objects WHERE state = 'stored' AND kind <> 'identity' ORDER BY key_id",
    );
    return rows.map(({ key_id }) => key_id).filter((id) => saved?.find(id) === undefined);
  } finally {
    await db.close();
  }
}
