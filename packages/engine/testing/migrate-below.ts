import { copyFile, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type MigratableDatabase, migrate } from '@torpor/database';
import { ALL_MIGRATIONS } from '@torpor/server/migrations';

/** Gives an empty database the schema of an earlier version: the migrations whose numbers are below `version`. */
export async function migrateBelow(db: MigratableDatabase, version: number): Promise<void> {
  const earlier = await mkdtemp(join(tmpdir(), 'torpor-migrations-'));
  try {
    for (const directory of ALL_MIGRATIONS) {
      const files = await readdir(directory);
      for (const file of files.filter((name) => Number(name.slice(0, 4)) < version)) {
        await copyFile(join(directory, file), join(earlier, file));
      }
    }
    await migrate(db, [earlier]);
  } finally {
    await rm(earlier, { recursive: true });
  }
}
