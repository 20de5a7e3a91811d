import { migrate } from '@torpor/database';
import { ALL_MIGRATIONS } from '@torpor/server/migrations';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds, type FreshDatabase, freshDatabase } from '../../testing/fresh-database.ts';
import { migrateBelow } from '../../testing/migrate-below.ts';
import { listOrgs } from './org.ts';

const SANDBOX = 'sbx_aaaaaaaaaaaaaaaaaaaa';

describe.each(databaseKinds)('a database from before there were organisations, on %s', (kind) => {
  let fresh: FreshDatabase;
  beforeEach(async () => {
    fresh = await freshDatabase(kind, { migrated: false });
    await migrateBelow(fresh.db, 6);
  });
  afterEach(() => fresh.dispose());

  /** One sandbox of an organisation, with the states it went through and when. */
  async function live(org: string, states: readonly (readonly [state: string, at: number])[]): Promise<void> {
    await fresh.db.transaction(async (tx) => {
      await tx.query(
        `INSERT INTO checkpoints (id, org, sandbox_id, seq, runtime, state, sealed, has_files, has_memory, needs,
           external, replayable, recovered, health, created_at)
         VALUES ('ckpt_1', $1, $2, 1, 'memory', 'sealed', 1, 1, 1, '{}', 0, 1, 0, 'ok', 5)`,
        [org, SANDBOX],
      );
      await tx.query(
        `INSERT INTO sandboxes (id, org, runtime, config, metadata, on_timeout, idle_ms, on_idle, state, seq,
           generation, lost, observed_at, evidence, created_at)
         VALUES ($1, $2, 'memory', '{"resources":{"memoryMb":256}}', '{}', 'pause', 1, 'pause', 'creating', 0, 0,
           '[]', 5, 'ledger', 5)`,
        [SANDBOX, org],
      );
      for (const [i, [state, at]] of states.entries()) {
        const previous = i === 0 ? [null, null] : [i, states[i - 1]?.[0] ?? null];
        await tx.query('UPDATE ledger_head SET position = position + 1');
        await tx.query(
          `INSERT INTO events (sandbox_id, seq, position, id, org, at, type, previous_seq, previous_state, state,
             generation, checkpoint_id, data)
           VALUES ($1, $2, $2, $3, $4, $5, 'sandbox.created', $6, $7, $8, 1, 'ckpt_1', '{}')`,
          [SANDBOX, i + 1, `evt_${i}`, org, at, previous[0] ?? null, previous[1] ?? null, state],
        );
      }
    });
  }
  const addKey = (hash: string, org: string, name: string, subject: string | null = null) =>
    fresh.db.transaction((tx) =>
      tx.query(
        'INSERT INTO api_keys (hash, id, org, subject, name, created_at) VALUES ($1, $1, $2, $3, $4, 7)',
        [hash, org, subject, name],
      ),
    );

  it('gets a row without quotas for each organisation that owns anything (R104)', async () => {
    await live('acme', [['creating', 5]]);
    await addKey('k1', 'default', 'first');
    await migrate(fresh.db, ALL_MIGRATIONS);
    const orgs = await listOrgs(fresh.db, '', 10);
    expect(orgs.map(({ id, createdAt }) => [id, createdAt])).toEqual([
      ['acme', 5],
      ['default', 7],
    ]);
    expect(new Set(orgs.flatMap(({ quotas }) => Object.values(quotas)))).toEqual(new Set([null]));
  });

  it('gets the default organisation even when it is empty (R104)', async () => {
    await migrate(fresh.db, ALL_MIGRATIONS);
    const [org] = await listOrgs(fresh.db, '', 10);
    expect(org?.id).toBe('default');
    expect(org?.createdAt).toBeGreaterThan(1_700_000_000_000);
  });

  it('turns the keys that servers were started with into operator keys, and no others (R104)', async () => {
    await addKey('k1', 'default', 'first');
    await addKey('k2', 'default', 'TORPOR_API_KEY');
    await addKey('k3', 'default', 'ci');
    await addKey('k4', 'acme', 'first');
    await addKey('k5', 'default', 'first', 'ada');
    await migrate(fresh.db, ALL_MIGRATIONS);
    const rows = await fresh.db.query('SELECT id FROM api_keys WHERE operator = 1 ORDER BY id');
    expect(rows.map(({ id }) => id)).toEqual(['k1', 'k2']);
  });

  it('computes the usage of its sandboxes from the ledger (R104)', async () => {
    await live('acme', [
      ['creating', 10],
      ['running', 20],
      ['running', 25],
      ['pausing', 30],
      ['paused', 50],
      ['resuming', 60],
      // A clock that was set back.
      ['running', 55],
      ['pausing', 100],
      ['running', 110],
    ]);
    await migrate(fresh.db, ALL_MIGRATIONS);
    const spans = await fresh.db.query(
      'SELECT kind, started_at, ended_at, memory_mb FROM usage_spans ORDER BY seq',
    );
    expect(spans).toEqual([
      { kind: 'running', started_at: 20, ended_at: 50, memory_mb: 256 },
      { kind: 'paused', started_at: 50, ended_at: 55, memory_mb: 256 },
      { kind: 'running', started_at: 55, ended_at: null, memory_mb: 256 },
    ]);
    expect(await fresh.db.query('SELECT org, kind, ms FROM usage_totals ORDER BY kind')).toEqual([
      { org: 'acme', kind: 'paused', ms: 5 },
      { org: 'acme', kind: 'running', ms: 30 },
    ]);
  });
});
