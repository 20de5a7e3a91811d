import { mkdtemp, open as openFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { canMount, ManualClock, withReadonlyView, withSmallDisk } from '@torpor/engine/testing';
import { TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { MigratableDatabase } from './migrate.ts';
import { openSqlite } from './sqlite.ts';

describe('the embedded database', () => {
  let directory: string;
  let path: string;
  const opened: { close(): unknown }[] = [];

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-sqlite-'));
    path = join(directory, 'torpor.db');
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((one) => one.close()));
    await rm(directory, { recursive: true });
  });

  async function open(options: { busyTimeoutMs?: number; clock?: ManualClock } = {}) {
    const db = await openSqlite({ path, ...options });
    opened.push(db);
    return db;
  }
  /** Another program that has the file open. */
  function otherProgram(): DatabaseSync {
    const other = new DatabaseSync(path, { timeout: 0 });
    opened.push(other);
    return other;
  }
  const createTable = (db: MigratableDatabase) =>
    db.transaction((tx) => tx.query('CREATE TABLE t (a TEXT) {strict}'));

  it('commits durably and checks foreign keys', async () => {
    const db = await open();
    const settings = await db.transaction(async (tx) => [
      ...(await tx.query('PRAGMA journal_mode')),
      ...(await tx.query('PRAGMA synchronous')),
      ...(await tx.query('PRAGMA foreign_keys')),
      ...(await tx.query('PRAGMA trusted_schema')),
    ]);
    expect(settings).toEqual([
      { journal_mode: 'wal' },
      { synchronous: 2 },
      { foreign_keys: 1 },
      { trusted_schema: 0 },
    ]);
  });

  it('is readable by its user alone, with all files beside it', async () => {
    await createTable(await open());
    const files = await readdir(directory);
    expect(files.sort()).toEqual(['torpor.db', 'torpor.db-shm', 'torpor.db-wal']);
    for (const file of files) expect((await stat(join(directory, file))).mode & 0o777).toBe(0o600);
  });

  it('runs transactions in the order of the calls', async () => {
    const db = await open();
    const order: number[] = [];
    const one = (n: number, ticks: number) =>
      db.transaction(async () => {
        for (let i = 0; i < ticks; i += 1) await new Promise(setImmediate);
        order.push(n);
      });
    await Promise.all([one(1, 5), one(2, 0), one(3, 2)]);
    expect(order).toEqual([1, 2, 3]);
  });

  it('runs the next transaction after one that failed', async () => {
    const db = await open();
    const failing = db.transaction(async () => {
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(await db.transaction(async () => 'done')).toBe('done');
  });

  it('works with more different statements than it keeps prepared', async () => {
    const db = await open();
    for (let i = 0; i < 1_200; i += 1) await db.query(`SELECT ${i} AS n`);
    expect(await db.query('SELECT 0 AS n')).toEqual([{ n: 0 }]);
  });

  it('waits for another program without blocking the process', async () => {
    const clock = new ManualClock();
    const db = await open({ clock });
    const other = otherProgram();
    other.exec('BEGIN IMMEDIATE');
    const created = createTable(db);
    await clock.untilAsleepFor(10);
    other.exec('ROLLBACK');
    clock.advance(10);
    await created;
    expect(await db.query('SELECT a FROM t')).toEqual([]);
  });

  it('fails when another program holds the file for too long, and says so', async () => {
    const db = await open({ busyTimeoutMs: 0 });
    const other = otherProgram();
    other.exec('BEGIN IMMEDIATE');
    await expect(createTable(db)).rejects.toMatchObject({ code: 'in_use', message: /torpor\.db/ });
    other.exec('ROLLBACK');
    await createTable(db);
  });

  it('names the file when the disk is full, changes nothing, and continues when there is space', async () => {
    const db = await open();
    await createTable(db);
    await db.transaction((tx) => tx.query('PRAGMA max_page_count = 10'));
    const big = (tx: { query(sql: string, params: string[]): Promise<unknown> }) =>
      tx.query('INSERT INTO t VALUES ($1)', ['x'.repeat(100_000)]);
    await expect(db.transaction(big)).rejects.toMatchObject({
      code: 'storage_full',
      message: expect.stringContaining(path),
    });
    expect(await db.query('SELECT count(*) AS n FROM t')).toEqual([{ n: 0 }]);
    await db.transaction((tx) => tx.query('PRAGMA max_page_count = 1000'));
    await db.transaction(big);
    expect(await db.query('SELECT count(*) AS n FROM t')).toEqual([{ n: 1 }]);
  });

  it('names the file that cannot be opened', async () => {
    await writeFile(join(directory, 'file'), '');
    path = join(directory, 'file', 'torpor.db');
    await expect(open()).rejects.toMatchObject({
      code: 'storage_readonly',
      message: expect.stringContaining(path),
    });
  });

  it.skipIf(!canMount())('names the file that is on a read-only disk', async () => {
    await (await open()).close();
    const readonly = join(directory, 'readonly');
    path = join(readonly, 'torpor.db');
    await withReadonlyView(directory, readonly, async () => {
      await expect(open()).rejects.toMatchObject({
        code: 'storage_readonly',
        message: expect.stringContaining(path),
      });
    });
  });

  it.skipIf(!canMount())('loses nothing on a disk that fills up', async () => {
    const disk = join(directory, 'disk');
    path = join(disk, 'torpor.db');
    await withSmallDisk(disk, 512, async () => {
      const db = await openSqlite({ path });
      await createTable(db);
      let written = 0;
      const error = await (async () => {
        for (;;) {
          await db.transaction((tx) => tx.query('INSERT INTO t VALUES ($1)', ['x'.repeat(10_000)]));
          written += 1;
        }
      })().catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: 'storage_full', message: expect.stringContaining(path) });
      expect(written).toBeGreaterThan(0);
      expect(await db.query('SELECT count(*) AS n FROM t')).toEqual([{ n: written }]);
      await db.close();
    });
  });

  it('names the file that is not a database, with a hint', async () => {
    await writeFile(path, 'not a database, but long enough to be taken for one. '.repeat(100));
    const error = await open().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(TorporError);
    expect(error).toMatchObject({ code: 'internal', message: expect.stringContaining(path) });
    expect((error as TorporError).hint).toMatch(/backup/);
  });

  it('reports a damaged page of the file', async () => {
    const db = await open();
    await createTable(db);
    await db.transaction(async (tx) => {
      for (let i = 0; i < 200; i += 1) await tx.query('INSERT INTO t VALUES ($1)', ['x'.repeat(500)]);
    });
    await db.close();
    await overwrite(path, 8_192, Buffer.alloc(16_384, 0xff));
    const damaged = await open();
    await expect(damaged.query('SELECT a FROM t')).rejects.toMatchObject({
      code: 'internal',
      message: expect.stringContaining(path),
    });
  });
});

async function overwrite(path: string, position: number, bytes: Buffer): Promise<void> {
  const file = await openFile(path, 'r+');
  await file.write(bytes, 0, bytes.length, position);
  await file.close();
}
