/**
 * A claim must cost the same however many jobs wait. What it costs is read from the database's own account
 * of the pages or entries it looked at, not from a clock.
 */
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { databaseKinds, type FreshDatabase, freshDatabase } from '../../testing/fresh-database.ts';
import type { Database, Row, SqlValue } from '../ports/database.ts';
import { claim, nextClaimableAt } from './claim.ts';

const NOW = 1_700_000_000_000;
const JOBS = 100_000;

/** All due but the urgent half, which no claim may have to read through. */
const FILL = {
  sqlite: `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2) `,
  postgres: 'WITH n (i) AS (SELECT generate_series(1, CAST($2 AS BIGINT))) ',
} as const;

describe.each(databaseKinds)('claiming on %s with 100,000 jobs waiting', (kind) => {
  let fresh: FreshDatabase;

  beforeAll(async () => {
    fresh = await freshDatabase(kind);
    await fresh.db.transaction((tx) =>
      tx.query(
        `${FILL[kind]}
         INSERT INTO queue_jobs
           (id, queue, priority, run_at, payload, state, attempts, max_attempts, token, created_at)
         SELECT 'job_' || i, 'q', i % 4, CASE WHEN i % 4 < 2 THEN $1 + i ELSE $1 - i END, '', 'waiting', 0, 5, 0, $1
         FROM n`,
        [NOW, JOBS],
      ),
    );
  });
  afterAll(() => fresh.dispose());

  it('finds the first due job of the most urgent priority', async () => {
    const job = await claim(fresh.db, { queues: ['q'], owner: 'me', now: NOW, leaseMs: 1_000 }).catch(
      (e: unknown) => e,
    );
    expect(job).toMatchObject({ priority: 2 });
  });

  it('reads a handful of entries for each of its statements', async () => {
    const seen: Statement[] = [];
    const watched = watch(fresh.db, seen);
    await claim(watched, { queues: ['q'], owner: 'me', now: NOW, leaseMs: 1_000 });
    await nextClaimableAt(watched, ['q']);
    expect(seen.length).toBeGreaterThanOrEqual(3);
    for (const statement of seen) {
      const cost =
        kind === 'sqlite'
          ? planOnSqlite(fresh.path ?? '', statement)
          : await pagesOnPostgres(fresh.db, statement);
      expect(cost, statement.sql).toBeLessThan(200);
    }
  });
});

interface Statement {
  readonly sql: string;
  readonly params: readonly SqlValue[];
}
