import { migrate } from '@torpor/database';
import { databaseKinds, type FreshDatabase, freshDatabase, migrateBelow } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ALL_MIGRATIONS } from './migrations.ts';

/**
 * The rows that released versions have written into `schema_migrations`. A row here never changes: the server refuses a
 * database whose row has another checksum.
 */
const APPLIED_BY_RELEASES = [
  ['0001_lifecycle', '4002a22b14940783beed98f447bff3613747d42f3fd3ddd80152d339910d2bb2'],
  ['0002_queue', '4041c29cdcc7288f4119282221ad3096256eb465c8f8c76b00a1faf7799eb5d6'],
  ['0003_api_keys', 'dd67af6e3fc008af7c4f4952a35f6c9980fe98cba5ed27bcf5e4257dd9ebe2df'],
  ['0004_builds', 'a7a0cf7eb4bbf9965b4569b4fcbaf4c9fd5962633f644798764536a638464a9e'],
  ['0005_sessions', '3efe7aae2934c9ea7c99087c61a0c3f15bae18750a82682d1bffb9c5b3b7bc8b'],
  ['0006_session_wakes', '614a4ce7a4c8567c56c5044b15a97d860c5560f24e24fb150068e8d688f950b9'],
  ['0007_checkpoint_health', 'caaa9c21200dbfe2d13950f6c8601145c02dacee054799debc21c105695983b3'],
  ['0008_organisations', 'f4df929b1266adc16bec8d9e4f385733b347c7aac23a5f6703ca5b2875a80cb6'],
  ['0009_jobs', '5f6d8637cb6ae0b13fa68d4c9542e2eafc1dec4e8fcb4ae30ee224fe495a74ea'],
  ['0010_build_retention', 'fac1cd4bac5a2c005b79c8eac1a496410781cee92dbb0e86ee7d9d7b39eda5b1'],
  ['0011_disk_and_retention', '92039a96259c3f0e990c462969b3fc538aea8460593d81e5238c2f3743d9e43d'],
] as const;

describe.each(databaseKinds)('the migrations of all packages, on %s', (kind) => {
  let fresh: FreshDatabase;
  beforeEach(async () => {
    fresh = await freshDatabase(kind, { migrated: false });
  });
  afterEach(() => fresh.dispose());

  const applied = async () => {
    const rows = await fresh.db.query<{ name: string; checksum: string }>(
      'SELECT name, checksum FROM schema_migrations ORDER BY version',
    );
    return rows.map(({ name, checksum }) => [name, checksum]);
  };

  it('bring a new database to the current schema, and apply nothing the second time', async () => {
    const names = await migrate(fresh.db, ALL_MIGRATIONS);
    expect(names.slice(0, APPLIED_BY_RELEASES.length)).toEqual(APPLIED_BY_RELEASES.map(([name]) => name));
    expect(await migrate(fresh.db, ALL_MIGRATIONS)).toEqual([]);
  });

  it('accept a database that was migrated from one directory with all files (R17)', async () => {
    await migrateBelow(fresh.db, APPLIED_BY_RELEASES.length + 1);
    expect(await applied()).toEqual(APPLIED_BY_RELEASES);
    const released = new Set<string>(APPLIED_BY_RELEASES.map(([name]) => name));
    const added = await migrate(fresh.db, ALL_MIGRATIONS);
    expect(added.filter((name) => released.has(name))).toEqual([]);
    expect((await applied()).slice(0, APPLIED_BY_RELEASES.length)).toEqual(APPLIED_BY_RELEASES);
  });
});
