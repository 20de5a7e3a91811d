import { migrate } from '@torpor/database';
import type { CheckpointId } from '@torpor/protocol';
import { ALL_MIGRATIONS } from '@torpor/server/migrations';
import { expect, it } from 'vitest';
import { databaseKinds, freshDatabase } from '../../testing/fresh-database.ts';
import { migrateBelow } from '../../testing/migrate-below.ts';
import { findCheckpoint } from './checkpoint.ts';

it.each(databaseKinds)(
  'on %s older damage counts against every part until it is read again (R91)',
  async (kind) => {
    const fresh = await freshDatabase(kind, { migrated: false });
    await migrateBelow(fresh.db, 7);
    const idOf = (n: number): CheckpointId => `ckpt_${String(n).padStart(20, '0')}`;
    const insert = (n: number, health: string, memory: number) =>
      fresh.db.transaction((tx) =>
        tx.query(
          `INSERT INTO checkpoints (id, org, seq, runtime, state, sealed, has_files, has_memory, needs, external,
           replayable, recovered, health, created_at) VALUES ($1, 'org', 1, 'gvisor', 'sealed', 1, 1, $2, '{}', 0, 1, 0, $3, 0)`,
          [idOf(n), memory, health],
        ),
      );
    await insert(1, 'ok', 1);
    await insert(2, 'damaged', 0);
    await insert(3, 'damaged', 1);
    await migrate(fresh.db, ALL_MIGRATIONS);
    const partsOf = async (n: number) =>
      (await findCheckpoint(fresh.db, idOf(n)))?.faults.map(({ part }) => part);
    expect([await partsOf(1), await partsOf(2), await partsOf(3)]).toEqual([
      [],
      ['files'],
      ['files', 'memory'],
    ]);
    await fresh.dispose();
  },
);
