/**
 * A claim must cost the same however many jobs wait. The cost is taken from the query plan of the database, not from a
 * clock.
 */
import { DatabaseSync } from 'node:sqlite';
import { renderSql } from '@torpor/database';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { databaseKinds, type FreshDatabase, freshDatabase } from '../../testing/fresh-database.ts';
import type { Database, SqlValue } from '../ports/database.ts';
import { claim } from './claim.ts';

const NOW = 1_700_000_000_000;
const NUMBERS = {
  sqlite: 'WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)',
  postgres: 'WITH n (i) AS (SELECT generate_series(1, 100000))',
} as const;

describe.each(databaseKinds)('claiming on %s with 100,000 jobs waiting', (kind) => {
  let fresh: FreshDatabase;
  let db: Database;

  beforeAll(async () => {
    fresh = await freshDatabase(kind);
    db = fresh.db;
    // The jobs of the two most urgent of four priorities are not yet due: a claim must not read them all.
    await db.transaction((tx) =>
      tx.query(
        `${NUMBERS[kind]}
         INSERT INTO queue_jobs
           (id, queue, priority, run_at, payload, state, attempts, max_attempts, token, created_at)
         SELECT 'job_' || i, 'q', i % 4, CAST($1 AS {integer}) + CASE WHEN i % 4 < 2 THEN i ELSE -i END,
           'null', 'waiting', 0, 5, 0, $1
         FROM n`,
        [NOW],
      ),
    );
  });
  afterAll(() => fresh.dispose());

  /** The statements that a claim sends. */
  async function statementsOfAClaim(): Promise<Statement[]> {
    const asked: Statement[] = [];
    const watched = watch(db, asked);
    const job = await claim(watched, { queues: ['q'], owner: 'me', now: NOW, leaseMs: 1_000 });
    expect(job).toMatchObject({ priority: 2 });
    expect(asked).toHaveLength(2);
    return asked;
  }

  it.runIf(kind === 'sqlite')('reads only the rows it needs, by the index', async () => {
    const [heads, lease] = (await statementsOfAClaim()).map((one) => planOnSqlite(fresh.path, one));
    expect(heads).toContain('queue_jobs_claim (queue=?)');
    expect(heads).toContain('queue_jobs_claim (queue=? AND priority>?)');
    expect(heads).toContain('queue_jobs_claim (queue=? AND priority=?)');
    expect(lease).toContain('queue_jobs_claim (queue=? AND priority=? AND claimable_at<?)');
    expect(`${heads}${lease}`).not.toMatch(/SCAN queue_jobs/);
    // Only the short list of priorities in use is sorted.
    expect(`${heads}${lease}`.match(/TEMP B-TREE/g)).toHaveLength(1);
  });

  it.runIf(kind === 'postgres').each([
    ['before the server has statistics', 'SELECT 1'],
    ['with statistics', 'ANALYZE queue_jobs'],
  ])('reads a handful of pages %s', async (_, first) => {
    await db.transaction((tx) => tx.query(first));
    for (const statement of await statementsOfAClaim()) {
      expect(await pagesOnPostgres(db, statement), statement.sql).toBeLessThan(100);
    }
  });
});

interface Statement {
  readonly sql: string;
  readonly params: readonly SqlValue[];
}

/** The same database, which also records its statements. */
function watch(db: Database, asked: Statement[]): Database {
  const noting =
    (to: Pick<Database, 'query'>): Database['query'] =>
    (sql, params = []) => {
      asked.push({ sql, params });
      return to.query(sql, params);
    };
  return {
    dialect: db.dialect,
    query: noting(db),
    transaction: (work) =>
      db.transaction((tx) => work({ query: noting(tx), notify: (channel) => tx.notify(channel) })),
    listen: (channel, onNotice) => db.listen(channel, onNotice),
    close: () => db.close(),
  };
}

function planOnSqlite(path = '', { sql }: Statement): string {
  const db = new DatabaseSync(path, { readOnly: true });
  try {
    const steps = db.prepare(`EXPLAIN QUERY PLAN ${renderSql('sqlite', sql).text}`).all();
    return steps.map((step) => step['detail']).join('\n');
  } finally {
    db.close();
  }
}

/** Runs the statement, and rolls it back. */
async function pagesOnPostgres(db: Database, { sql, params }: Statement): Promise<number> {
  let pages = Number.NaN;
  const undone = new Error('undone');
  const attempt = db.transaction(async (tx) => {
    const [row] = await tx.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${sql}`, params);
    const [{ Plan: plan }] = JSON.parse(String(row?.['QUERY PLAN']));
    pages = plan['Shared Hit Blocks'] + plan['Shared Read Blocks'];
    throw undone;
  });
  await expect(attempt).rejects.toBe(undone);
  return pages;
}
