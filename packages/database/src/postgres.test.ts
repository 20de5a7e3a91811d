import type { Transaction } from '@torpor/engine';
import { databaseKinds, type FreshDatabase, freshDatabase, ManualClock } from '@torpor/engine/testing';
import { TorporError } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type PostgresProxy, startPostgresProxy } from '../testing/postgres-proxy.ts';
import type { MigratableDatabase } from './migrate.ts';
import { openPostgres, type PostgresOptions } from './postgres.ts';

describe.runIf(databaseKinds.includes('postgres'))('the shared database', () => {
  let fresh: FreshDatabase;
  let db: MigratableDatabase;
  let proxy: PostgresProxy;
  const opened: MigratableDatabase[] = [];

  beforeAll(async () => {
    fresh = await freshDatabase('postgres', { migrated: false });
    db = fresh.db;
    await db.transaction((tx) => tx.query('CREATE TABLE t (id {integer} PRIMARY KEY, n {integer})'));
  });
  beforeEach(async () => {
    await db.transaction((tx) => tx.query('DELETE FROM t'));
    await db.transaction((tx) => tx.query('INSERT INTO t VALUES (1, 0), (2, 0)'));
    proxy = await startPostgresProxy(fresh.url ?? '');
  });
  afterEach(async () => {
    await proxy.close();
    await Promise.all(opened.splice(0).map((one) => one.close()));
  });
  afterAll(() => fresh.dispose());

  /** An adapter whose connections the test can cut and freeze. */
  async function openThroughProxy(options: Omit<PostgresOptions, 'url'> = {}) {
    const through = await openPostgres({ ...options, url: proxy.url });
    opened.push(through);
    return through;
  }
  const add = (tx: Transaction, id: number) => tx.query('UPDATE t SET n = n + 1 WHERE id = $1', [id]);
  const numbers = async () => {
    const rows = await db.query<{ n: number }>('SELECT n FROM t ORDER BY id');
    return rows.map(({ n }) => n);
  };
  const raise = (state: string) =>
    db.transaction((tx) => tx.query(`DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '${state}'; END $$`));
  const connections = async () =>
    (
      await db.query<{ n: number }>(
        "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'",
      )
    )[0]?.n ?? 0;

  describe('transactions in conflict with another', () => {
    it('run again after a deadlock, until both are done', async () => {
      let runs = 0;
      const bothHold = Promise.withResolvers<void>();
      let holding = 0;
      const crossing = (first: number, second: number) =>
        db.transaction(async (tx) => {
          runs += 1;
          await tx.query("SET LOCAL deadlock_timeout = '20ms'");
          await add(tx, first);
          holding += 1;
          if (holding === 2) bothHold.resolve();
          await bothHold.promise;
          await add(tx, second);
        });
      await Promise.all([crossing(1, 2), crossing(2, 1)]);
      expect(await numbers()).toEqual([2, 2]);
      expect(runs).toBeGreaterThan(2);
    });

    it('fail after a few attempts with a retryable error', async () => {
      let runs = 0;
      const attempt = db.transaction(async (tx) => {
        runs += 1;
        // The transaction runs again although `work` throws another error.
        await tx.query("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$").catch(() => {
          throw new Error('hidden');
        });
      });
      await expect(attempt).rejects.toMatchObject({ code: 'capacity', retryable: true });
      expect(runs).toBe(5);
    });
  });

  describe('an error of the server', () => {
    it.each([
      ['53100', 'storage_full'],
      ['25006', 'storage_readonly'],
      ['57014', 'timeout'],
      ['53300', 'unreachable'],
      ['XX001', 'internal'],
    ])('as %s becomes %s and names the database', async (state, code) => {
      const error = await raise(state).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(TorporError);
      expect(error).toMatchObject({ code, message: expect.stringContaining('PostgreSQL at') });
    });

    it('is passed on when it is an error in the statement', async () => {
      await expect(raise('42P01')).rejects.toMatchObject({ code: '42P01' });
    });
  });

  describe('waiting', () => {
    it('for a statement that takes too long ends', async () => {
      const hasty = await openThroughProxy({ statementTimeoutMs: 300 });
      await expect(hasty.query('SELECT pg_sleep(60)')).rejects.toMatchObject({ code: 'timeout' });
      expect(await hasty.query('SELECT 1 AS one')).toEqual([{ one: 1 }]);
    });

    it('for an answer that never comes ends', async () => {
      const limits = { statementTimeoutMs: 300, answerGraceMs: 300, connectTimeoutMs: 1_000 };
      const hasty = await openThroughProxy(limits);
      proxy.freeze();
      await expect(hasty.query('SELECT 1 AS one')).rejects.toMatchObject({ code: 'unreachable' });
    });

    it('for a connection ends when all are in use', async () => {
      const small = await openThroughProxy({ writers: 1, connectTimeoutMs: 500 });
      const gate = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      const first = small.transaction(async () => {
        begun.resolve();
        await gate.promise;
      });
      await begun.promise;
      await expect(small.transaction(async () => 1)).rejects.toMatchObject({ code: 'unreachable' });
      gate.resolve();
      await first;
    });

    it('for an idle transaction ends, and frees its locks', async () => {
      const hasty = await openThroughProxy({ idleTransactionTimeoutMs: 300 });
      const abandoned = hasty.transaction(async (tx) => {
        await add(tx, 1);
        // Waits for the lock that the idle transaction holds.
        await db.transaction((other) => add(other, 1));
        await add(tx, 2);
      });
      await expect(abandoned).rejects.toMatchObject({ code: 'unreachable' });
      expect(await numbers()).toEqual([1, 0]);
    });

    it('for a migration may take longer', async () => {
      const hasty = await openThroughProxy({ statementTimeoutMs: 300, answerGraceMs: 300 });
      await hasty.migration((tx) => tx.script('SELECT pg_sleep(0.8)'));
    });
  });

  describe('a lost connection', () => {
    it('does not end the process when it is idle, and is replaced', async () => {
      const other = await openThroughProxy();
      await other.transaction((tx) => add(tx, 1));
      await proxy.cut();
      await other.transaction((tx) => add(tx, 1));
      expect(await other.query('SELECT n FROM t WHERE id = 1')).toEqual([{ n: 2 }]);
    });

    it('fails the transaction on it, also between two statements', async () => {
      const other = await openThroughProxy();
      const attempt = other.transaction(async (tx) => {
        await add(tx, 1);
        await proxy.cut();
        await add(tx, 2);
      });
      await expect(attempt).rejects.toMatchObject({ code: 'unreachable' });
      expect(await numbers()).toEqual([0, 0]);
    });

    it('leaves the outcome unknown when the answer to COMMIT is lost, and says so', async () => {
      const other = await openThroughProxy();
      proxy.cutAtAnswerTo('COMMIT');
      const error = await other.transaction((tx) => add(tx, 1)).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(TorporError);
      expect((error as TorporError).toBody()).toMatchObject({
        code: 'unreachable',
        message: expect.stringContaining('not known'),
        details: { outcome: 'unknown' },
      });
      expect(await numbers()).toEqual([1, 0]);
    });

    it('leaves the outcome unknown when the server goes down during COMMIT', async () => {
      await db.migration((tx) =>
        tx.script(`
          CREATE TABLE trap (a BIGINT);
          CREATE FUNCTION go_down() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
          CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON trap DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION go_down();`),
      );
      const attempt = db.transaction((tx) => tx.query('INSERT INTO trap VALUES (1)'));
      await expect(attempt).rejects.toMatchObject({ code: 'unreachable', message: /not known/ });
      expect(await db.query('SELECT a FROM trap')).toEqual([]);
    });
  });

  describe('listening', () => {
    it('reconnects, notifies at once, and receives notifications again', async () => {
      const clock = new ManualClock();
      const other = await openThroughProxy({ clock, random: () => 1 });
      let heard = Promise.withResolvers<void>();
      await other.listen('news', () => heard.resolve());
      await proxy.cut();
      await clock.untilAsleepFor(100);
      clock.advance(100);
      await heard.promise;
      heard = Promise.withResolvers();
      await db.transaction(async (tx) => tx.notify('news'));
      await heard.promise;
    });

    it('reconnects after growing delays while the server is down', async () => {
      const clock = new ManualClock();
      const other = await openThroughProxy({ clock, random: () => 1 });
      const heard = Promise.withResolvers<void>();
      await other.listen('news', () => heard.resolve());
      proxy.refuse();
      await proxy.cut();
      for (const pause of [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]) {
        await clock.untilAsleepFor(pause);
        clock.advance(pause);
      }
      await clock.untilAsleepFor(5_000);
      await expect(other.listen('more', () => {})).rejects.toMatchObject({ code: 'unreachable' });
      proxy.accept();
      clock.advance(5_000);
      await heard.promise;
    });

    it('notices a connection that died silently', async () => {
      const clock = new ManualClock();
      const other = await openThroughProxy({
        clock,
        random: () => 1,
        statementTimeoutMs: 300,
        answerGraceMs: 300,
      });
      const heard = Promise.withResolvers<void>();
      await other.listen('news', () => heard.resolve());
      await clock.untilAsleepFor(30_000);
      proxy.freeze();
      clock.advance(30_000);
      await clock.untilAsleepFor(100);
      proxy.thaw();
      clock.advance(100);
      await heard.promise;
    });

    it('leaves no connection behind after close', async () => {
      const before = await connections();
      const other = await openThroughProxy();
      await other.listen('news', () => {});
      await other.transaction((tx) => add(tx, 1));
      expect(await connections()).toBeGreaterThan(before);
      await other.close();
      await expect.poll(connections).toBeLessThanOrEqual(before);
    });
  });

  describe('opening', () => {
    it('reports that the server does not answer, without the password', async () => {
      const error = await openPostgres({ url: 'postgres://me:secret@127.0.0.1:1/x' }).catch(
        (e: unknown) => e,
      );
      expect(error).toMatchObject({ code: 'unreachable', message: expect.stringContaining('127.0.0.1:1/x') });
      expect(JSON.stringify((error as TorporError).toBody())).not.toContain('secret');
    });

    it('reports that there is no such database', async () => {
      const url = new URL(fresh.url ?? '');
      url.pathname = '/nowhere';
      await expect(openPostgres({ url: url.href })).rejects.toMatchObject({
        code: 'unreachable',
        message: expect.stringContaining('3D000'),
      });
    });

    it.each(['mysql://127.0.0.1/x', 'nonsense:secret'])('refuses %s without repeating it', async (url) => {
      const error = await openPostgres({ url }).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: 'invalid_request' });
      expect((error as TorporError).message).not.toContain(url);
    });
  });
});
