/** The contract of every adapter of the Database port. */

import { ConstraintViolation, type Database, type Transaction } from '@torpor/engine';
import { type DatabaseKind, type FreshDatabase, freshDatabase } from '@torpor/engine/testing';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

const TRIGGER = {
  sqlite: `CREATE TRIGGER notes_never_change BEFORE UPDATE ON notes
    BEGIN SELECT RAISE(ABORT, 'notes never change'); END;`,
  postgres: `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN RAISE EXCEPTION 'notes never change'; END $$;
    CREATE TRIGGER notes_never_change BEFORE UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION refuse();`,
} as const;

export function databaseContract(kind: DatabaseKind): void {
  let fresh: FreshDatabase;
  let db: Database;

  beforeAll(async () => {
    fresh = await freshDatabase(kind, { migrated: false });
    db = fresh.db;
    await fresh.db.migration(async (tx) => {
      await tx.query(`CREATE TABLE things (
        id {integer} PRIMARY KEY,
        name TEXT UNIQUE,
        size {real} CHECK (size > 0),
        amount {integer} NOT NULL DEFAULT 0,
        parent {integer} REFERENCES things (id),
        owner {integer} REFERENCES things (id) DEFERRABLE INITIALLY DEFERRED
      ) {strict}`);
      await tx.query('CREATE TABLE notes (body TEXT NOT NULL) {strict}');
      await tx.script(TRIGGER[kind]);
    });
  });
  beforeEach(async () => {
    await db.transaction(async (tx) => {
      await tx.query('DELETE FROM things');
      await tx.query('DELETE FROM notes');
    });
  });
  afterAll(() => fresh.dispose());

  const insert = (tx: Transaction, id: number) => tx.query('INSERT INTO things (id) VALUES ($1)', [id]);
  const ids = async (from: Database = db) => {
    const rows = await from.query<{ id: number }>('SELECT id FROM things ORDER BY id');
    return rows.map(({ id }) => id);
  };

  describe('values', () => {
    it('are read as they were written', async () => {
      const rows = await db.transaction(async (tx) => {
        await tx.query('INSERT INTO things (id, name, size) VALUES ($1, $2, $3)', [
          -5,
          'ünï "c" \'ö\' 🦔',
          0.25,
        ]);
        return await tx.query(
          'INSERT INTO things (id, name, size) VALUES ($1, $2, $3) RETURNING id, name, size',
          [1_700_000_000_123, null, 3],
        );
      });
      expect(rows).toEqual([{ id: 1_700_000_000_123, name: null, size: 3 }]);
      expect(await db.query('SELECT name, size FROM things WHERE id = $1', [-5])).toEqual([
        { name: 'ünï "c" \'ö\' 🦔', size: 0.25 },
      ]);
    });

    it('are numbers for counts, sums, integer arithmetic and truth', async () => {
      await db.transaction(async (tx) => {
        await tx.query('INSERT INTO things (id, amount) VALUES (1, 5), (2, 6)');
      });
      const rows = await db.query(
        'SELECT count(*) AS n, sum(amount) AS total, max(amount) / 4 AS quarter, 1 = 1 AS yes FROM things',
      );
      expect(rows).toEqual([{ n: 2, total: 11, quarter: 1, yes: 1 }]);
    });

    it('are bound as integers when they are whole', async () => {
      expect(await db.query('SELECT CAST($1 AS {integer}) / 2 AS half', [5])).toEqual([{ half: 2 }]);
      expect(await db.query("SELECT $1 || '' AS text", [5])).toEqual([{ text: '5' }]);
    });

    it('are found by number, in any order and more than once', async () => {
      const [row] = await db.query("SELECT $2 || $1 || $2 AS text, '$1 {strict}' AS literal", ['a', 'b']);
      expect(row).toEqual({ text: 'bab', literal: '$1 {strict}' });
    });

    it('are refused when an integer is too large for a number', async () => {
      await expect(db.query('SELECT 9007199254740993 AS big')).rejects.toThrow();
      expect(await db.query('SELECT 9007199254740991 AS big')).toEqual([{ big: 9007199254740991 }]);
    });

    it('are refused when their number is wrong', async () => {
      await expect(db.query('SELECT id FROM things WHERE id = $1', [])).rejects.toThrow();
      await expect(db.query('SELECT id FROM things WHERE id = $1', [1, 2])).rejects.toThrow();
    });
  });

  describe('query', () => {
    it('accepts one statement', async () => {
      await expect(db.query('SELECT 1 AS a; SELECT $1 AS b', [2])).rejects.toThrow();
    });

    it('only reads outside a transaction', async () => {
      await expect(db.query('INSERT INTO things (id) VALUES (1)')).rejects.toMatchObject({
        code: 'internal',
        message: 'A statement outside a transaction may only read.',
      });
      expect(await ids()).toEqual([]);
    });

    it('reads nothing of a transaction before its commit, and does not wait for it', async () => {
      const duringIt = await db.transaction(async (tx) => {
        await insert(tx, 1);
        return { outside: await ids(), inside: (await tx.query('SELECT id FROM things')).length };
      });
      expect(duringIt).toEqual({ outside: [], inside: 1 });
      expect(await ids()).toEqual([1]);
    });

    it('passes on an error in the statement', async () => {
      await expect(db.query('SELEC 1')).rejects.toThrow(/syntax/i);
      await expect(db.query('SELECT {NO SUCH WORD} 1')).rejects.toMatchObject({ code: 'internal' });
    });
  });

  describe('transaction', () => {
    it('rolls back when work throws, and passes on what it threw', async () => {
      const thrown = new Error('no');
      const attempt = db.transaction(async (tx) => {
        await insert(tx, 1);
        throw thrown;
      });
      await expect(attempt).rejects.toBe(thrown);
      expect(await ids()).toEqual([]);
    });

    it("keeps another caller's statements out while work awaits something else", async () => {
      const gate = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      const first = db.transaction(async (tx) => {
        await insert(tx, 1);
        begun.resolve();
        await gate.promise;
        await insert(tx, 2);
        throw new Error('roll back');
      });
      await begun.promise;
      const second = db.transaction(async (tx) => {
        await insert(tx, 10);
        await new Promise(setImmediate);
        await insert(tx, 11);
      });
      gate.resolve();
      await expect(first).rejects.toThrow('roll back');
      await second;
      expect(await ids()).toEqual([10, 11]);
    });

    it('serialises those that lock the same row', async () => {
      await db.transaction((tx) => insert(tx, 1));
      const increment = () =>
        db.transaction(async (tx) => {
          const [row] = await tx.query<{ amount: number }>(
            'SELECT amount FROM things WHERE id = 1 {FOR UPDATE}',
          );
          await new Promise(setImmediate);
          await tx.query('UPDATE things SET amount = $1 WHERE id = 1', [(row?.amount ?? 0) + 1]);
        });
      await Promise.all(Array.from({ length: 25 }, increment));
      expect(await db.query('SELECT amount FROM things')).toEqual([{ amount: 25 }]);
    });

    it('runs statements in the order of the calls, also those that are not awaited', async () => {
      await db.transaction(async (tx) => {
        const both = Promise.all([insert(tx, 1), tx.query('UPDATE things SET amount = 7 WHERE id = 1')]);
        void tx.query('UPDATE things SET amount = amount + 1 WHERE id = 1');
        await both;
      });
      expect(await db.query('SELECT amount FROM things')).toEqual([{ amount: 8 }]);
    });

    it('fails when a statement that is not awaited fails', async () => {
      const attempt = db.transaction(async (tx) => {
        void tx.query('INSERT INTO things (id) VALUES (1), (1)');
      });
      await expect(attempt).rejects.toBeInstanceOf(ConstraintViolation);
    });

    it('fails as a whole when a statement failed, even if work caught it', async () => {
      const attempt = db.transaction(async (tx) => {
        await insert(tx, 1);
        await insert(tx, 1).catch(() => undefined);
        await insert(tx, 2).catch(() => undefined);
      });
      await expect(attempt).rejects.toMatchObject({ kind: 'unique' });
      expect(await ids()).toEqual([]);
    });

    it('rejects with the error that work made of a failed statement', async () => {
      const attempt = db.transaction(async (tx) => {
        await insert(tx, 1);
        await insert(tx, 1).catch(() => {
          throw new Error('that one is taken');
        });
      });
      await expect(attempt).rejects.toThrow('that one is taken');
    });

    it('is refused inside another one', async () => {
      const attempt = db.transaction(async (tx) => {
        await insert(tx, 1);
        await db.transaction((inner) => insert(inner, 2));
      });
      await expect(attempt).rejects.toMatchObject({ code: 'internal', message: /inside another/ });
      expect(await ids()).toEqual([]);
    });

    it('may be begun by code that an ended one left running', async () => {
      const ended = Promise.withResolvers<void>();
      let later: Promise<unknown> = Promise.resolve();
      await db.transaction(async () => {
        later = ended.promise.then(() => db.transaction((tx) => insert(tx, 1)));
      });
      ended.resolve();
      await later;
      expect(await ids()).toEqual([1]);
    });

    it('takes no statements after its end', async () => {
      const tx = await db.transaction(async (one) => one);
      await expect(insert(tx, 1)).rejects.toMatchObject({ code: 'internal' });
      expect(await ids()).toEqual([]);
    });
  });

  describe('constraints', () => {
    const refusal = (sql: string) =>
      db
        .transaction((tx) => tx.query(sql))
        .then(
          () => undefined,
          (error: unknown) => error,
        );

    it.each([
      ['unique', "INSERT INTO things (id, name) VALUES (1, 'a'), (2, 'a')"],
      ['unique', 'INSERT INTO things (id) VALUES (1), (1)'],
      ['foreign_key', 'INSERT INTO things (id, parent) VALUES (1, 99)'],
      ['foreign_key', 'INSERT INTO things (id, owner) VALUES (1, 99)'],
      ['check', 'INSERT INTO things (id, size) VALUES (1, -1)'],
      ['check', 'INSERT INTO things (id, amount) VALUES (1, NULL)'],
    ])('refuse with the kind %s: %s', async (expected, sql) => {
      const error = await refusal(sql);
      expect(error).toBeInstanceOf(ConstraintViolation);
      expect(error).toMatchObject({ kind: expected });
      expect(await ids()).toEqual([]);
    });

    it('count an error raised by a trigger as a check, with its message', async () => {
      await db.transaction((tx) => tx.query("INSERT INTO notes VALUES ('a')"));
      const error = await refusal("UPDATE notes SET body = 'b'");
      expect(error).toBeInstanceOf(ConstraintViolation);
      expect(error).toMatchObject({ kind: 'check', message: 'notes never change' });
    });

    it('may be violated until the commit when they are deferred', async () => {
      await db.transaction(async (tx) => {
        await tx.query('INSERT INTO things (id, owner) VALUES (1, 2)');
        await insert(tx, 2);
      });
      expect(await ids()).toEqual([1, 2]);
    });
  });

  describe('notifications', () => {
    /** Listens to a channel, and can wait for the next notification. */
    async function ear(channel: string, on: Database = db) {
      let heard = 0;
      let onHeard = () => {};
      const stop = await on.listen(channel, () => {
        heard += 1;
        onHeard();
      });
      return {
        stop,
        count: () => heard,
        next: () =>
          new Promise<void>((resolve) => {
            onHeard = resolve;
          }),
      };
    }
    /** Notifications arrive in order, so when this one has arrived, the earlier ones have too. */
    async function afterAllNotices() {
      const fence = await ear('fence');
      const heard = fence.next();
      await db.transaction(async (tx) => tx.notify('fence'));
      await heard;
      await fence.stop();
    }

    it('arrive once after the commit, for the listeners of the channel', async () => {
      const [one, other] = [await ear('one'), await ear('other')];
      await db.transaction(async (tx) => {
        tx.notify('one');
        tx.notify('one');
        await insert(tx, 1);
        await new Promise(setImmediate);
        expect(one.count()).toBe(0);
      });
      await afterAllNotices();
      expect([one.count(), other.count()]).toEqual([1, 0]);
      await Promise.all([one.stop(), other.stop()]);
    });

    it('arrive when the commit is visible', async () => {
      const seen = Promise.withResolvers<number[]>();
      const stop = await db.listen('look', () => seen.resolve(ids()));
      await db.transaction(async (tx) => {
        tx.notify('look');
        await insert(tx, 1);
      });
      expect(await seen.promise).toEqual([1]);
      await stop();
    });

    it('do not arrive after a rollback', async () => {
      const one = await ear('one');
      const attempt = db.transaction(async (tx) => {
        tx.notify('one');
        throw new Error('no');
      });
      await expect(attempt).rejects.toThrow('no');
      await afterAllNotices();
      expect(one.count()).toBe(0);
      await one.stop();
    });

    it('end for one listener without ending for the others', async () => {
      const [stays, goes] = [await ear('it"s'), await ear('it"s')];
      await goes.stop();
      await db.transaction(async (tx) => tx.notify('it"s'));
      await afterAllNotices();
      expect([stays.count(), goes.count()]).toEqual([1, 0]);
      await stays.stop();
    });
  });

  describe('a second adapter on the same database', () => {
    it('reads commits of the first and waits for its transactions', async () => {
      const other = await fresh.openAnother();
      await db.transaction((tx) => insert(tx, 1));
      expect(await ids(other)).toEqual([1]);
      const increment = (on: Database) =>
        on.transaction(async (tx) => {
          const [row] = await tx.query<{ amount: number }>(
            'SELECT amount FROM things WHERE id = 1 {FOR UPDATE}',
          );
          await new Promise(setImmediate);
          await tx.query('UPDATE things SET amount = $1 WHERE id = 1', [(row?.amount ?? 0) + 1]);
        });
      await Promise.all(Array.from({ length: 20 }, (_, i) => increment(i % 2 === 0 ? db : other)));
      expect(await db.query('SELECT amount FROM things')).toEqual([{ amount: 20 }]);
      await other.close();
    });
  });

  describe('close', () => {
    it('waits for calls under way, may be called twice, and refuses later calls', async () => {
      const other = await fresh.openAnother();
      const gate = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      const underWay = other.transaction(async (tx) => {
        begun.resolve();
        await gate.promise;
        await insert(tx, 1);
      });
      await begun.promise;
      const queued = other.transaction((tx) => insert(tx, 2));
      const closed = other.close();
      gate.resolve();
      await Promise.all([underWay, queued, closed, other.close()]);
      expect(await ids()).toEqual([1, 2]);
      await expect(other.query('SELECT 1')).rejects.toMatchObject({ code: 'unreachable' });
      await expect(other.transaction(async () => 1)).rejects.toMatchObject({ code: 'unreachable' });
      await expect(other.listen('one', () => {})).rejects.toMatchObject({ code: 'unreachable' });
    });
  });
}
