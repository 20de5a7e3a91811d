/**
 * The embedded database survives kill -9 under load: every acknowledged transaction is complete, and no transaction is
 * partial. The test uses a real disk, because an in-memory database has no journal.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { claimDataDirectory } from '../packages/database/src/data-directory.ts';
import { openSqlite } from '../packages/database/src/sqlite.ts';
import { Random } from './seeded-random.ts';

const CHILD = fileURLToPath(new URL('./database-kill-child.ts', import.meta.url));
/** `npm run test:crash` kills it more often. */
const ROUNDS = Number(process.env['TORPOR_KILLS'] ?? 25);
const PARTS = 3;
const SEED = Number(process.env['TORPOR_TEST_SEED'] ?? Date.now() % 1_000_000);

type Child = ChildProcessByStdio<null, Readable, null>;

describe('the embedded database under kill -9', () => {
  let directory: string;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-kill-'));
    await withDatabase((db) =>
      db.transaction((tx) =>
        tx.query(`CREATE TABLE parts (
          batch TEXT NOT NULL, part {integer} NOT NULL, filler TEXT NOT NULL, PRIMARY KEY (batch, part)
        ) {strict}`),
      ),
    );
  });
  afterAll(() => rm(directory, { recursive: true }));

  /** Opens the database as the server does. The claim succeeds only if the kill released the directory. */
  async function withDatabase<T>(
    work: (db: Awaited<ReturnType<typeof openSqlite>>) => Promise<T>,
  ): Promise<T> {
    const claimed = await claimDataDirectory(directory);
    const db = await openSqlite({ path: join(directory, 'torpor.db') });
    try {
      return await work(db);
    } finally {
      await db.close();
      await claimed.release();
    }
  }

  it(`loses nothing in ${ROUNDS} rounds (R112)`, { timeout: Math.max(180_000, ROUNDS * 5_000) }, async () => {
    const random = new Random(SEED);
    const acknowledged = new Set<string>();
    for (let round = 0; round < ROUNDS; round += 1) {
      const where = `seed ${SEED}, round ${round}`;
      for (const batch of await writeUntilKilled(directory, round, random)) acknowledged.add(batch);
      const { integrity, partsOf } = await withDatabase(async (db) => ({
        integrity: await db.query('PRAGMA integrity_check'),
        partsOf: new Map(
          (
            await db.query<{ batch: string; parts: number }>(
              'SELECT batch, count(*) AS parts FROM parts GROUP BY batch',
            )
          ).map(({ batch, parts }) => [batch, parts]),
        ),
      }));
      expect(integrity, where).toEqual([{ integrity_check: 'ok' }]);
      expect(
        [...acknowledged].filter((batch) => !partsOf.has(batch)),
        `lost: ${where}`,
      ).toEqual([]);
      expect(
        [...partsOf].filter(([, parts]) => parts !== PARTS),
        `partial: ${where}`,
      ).toEqual([]);
    }
    expect(acknowledged.size).toBeGreaterThan(ROUNDS);
  });
});

/** Kills the writer shortly after a random number of acknowledgements. Returns all acknowledgements. */
async function writeUntilKilled(directory: string, round: number, random: Random): Promise<string[]> {
  const child: Child = spawn(process.execPath, [CHILD, directory, String(round)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const killAt = random.between(1, 60);
  const after = random.below(3_000) / 1_000;
  const batches: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    batches.push(line);
    if (batches.length === killAt) setTimeout(() => child.kill('SIGKILL'), after);
  }
  const [, signal] = await exited;
  expect(signal, `seed ${SEED}, round ${round}`).toBe('SIGKILL');
  return batches;
}
