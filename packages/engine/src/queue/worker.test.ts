import { type JobId, TorporError } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds, type FreshDatabase, freshDatabase } from '../../testing/fresh-database.ts';
import { ManualClock } from '../../testing/manual-clock.ts';
import type { Database } from '../ports/database.ts';
import { randomIds } from '../ports/ids.ts';
import { claim } from './claim.ts';
import { countJobs } from './count-jobs.ts';
import { enqueue, type NewJob } from './enqueue.ts';
import { type Job, LeaseLost } from './job.ts';
import { complete } from './lease.ts';
import { startWorker, type Worker, type WorkerOptions } from './worker.ts';

/** A third of it differs from every other pause, so that tests recognise the sleep between renewals. */
const LEASE = 2_100;
const POLL = 60_000;

/** An event that happens once and can be awaited. */
function event<T = void>() {
  return Promise.withResolvers<T>();
}

describe.each(databaseKinds)('a worker on %s', (kind) => {
  let fresh: FreshDatabase;
  let db: Database;
  let clock: ManualClock;
  const workers: Worker[] = [];
  const faults: unknown[] = [];

  beforeAll(async () => {
    fresh = await freshDatabase(kind);
    db = fresh.db;
  });
  beforeEach(async () => {
    clock = new ManualClock();
    faults.length = 0;
    await db.transaction((tx) => tx.query('DELETE FROM queue_jobs'));
  });
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
  });
  afterAll(() => fresh.dispose());

  async function start(handle: WorkerOptions['handle'], options: Partial<WorkerOptions> = {}) {
    const worker = await startWorker({
      db,
      clock,
      queues: ['q'],
      owner: 'me',
      concurrency: 1,
      leaseMs: LEASE,
      pollMs: POLL,
      stopWithinMs: 1_500,
      handle,
      onFault: (error) => faults.push(error),
      ...options,
    });
    workers.push(worker);
    return worker;
  }
  const put = (job: Partial<NewJob> = {}) =>
    db.transaction((tx) =>
      enqueue(tx, { id: randomIds.next('job'), queue: 'q', payload: null, now: clock.now(), ...job }),
    );
  const stateOf = async (id: JobId) => {
    const [row] = await db.query<{ state: string }>('SELECT state FROM queue_jobs WHERE id = $1', [id]);
    return row?.state;
  };

  it('runs waiting jobs when it starts and new jobs at once, without waiting for the clock', async () => {
    const first = await put({ payload: 'first' });
    const seen: unknown[] = [];
    let next = event<unknown>();
    await start(async (job) => {
      seen.push(job.payload);
      next.resolve(job.payload);
      return undefined;
    });
    await next.promise;
    next = event();
    const second = await put({ payload: 'second' });
    await next.promise;
    expect(seen).toEqual(['first', 'second']);
    await expect.poll(() => stateOf(first.id)).toBe('done');
    await expect.poll(() => stateOf(second.id)).toBe('done');
    expect(faults).toEqual([]);
  });

  it('runs a job when it is due', async () => {
    const done = event<number>();
    await put({ runAt: clock.now() + 5_000 });
    await start(async () => {
      done.resolve(clock.now());
      return undefined;
    });
    await clock.untilAsleepFor(5_000);
    const due = clock.now() + 5_000;
    clock.advance(5_000);
    expect(await done.promise).toBe(due);
  });

  it('polls even without notifications', async () => {
    const done = event();
    await start(async () => {
      done.resolve();
      return undefined;
    });
    await clock.untilAsleepFor(POLL);
    await db.transaction((tx) =>
      // Simulates a lost notification.
      enqueue(
        { query: (...asked) => tx.query(...asked), notify: () => {} },
        {
          id: randomIds.next('job'),
          queue: 'q',
          payload: null,
          now: clock.now(),
        },
      ),
    );
    clock.advance(POLL);
    await done.promise;
  });

  it('runs as many jobs at once as allowed, and no more', async () => {
    for (let i = 0; i < 5; i += 1) await put();
    let running = 0;
    let most = 0;
    const full = event();
    const gate = event();
    await start(
      async () => {
        running += 1;
        most = Math.max(most, running);
        if (running === 3) full.resolve();
        await gate.promise;
        running -= 1;
        return undefined;
      },
      { concurrency: 3 },
    );
    await full.promise;
    expect((await countJobs(db)).get('q')).toMatchObject({ leased: 3, waiting: 2 });
    gate.resolve();
    await expect.poll(async () => (await countJobs(db)).get('q')?.done).toBe(5);
    expect(most).toBe(3);
  });

  it('writes the effects and the end in one transaction', async () => {
    const { id } = await put({ maxAttempts: 1 });
    const failed = event();
    await start(
      async () => async (tx) => {
        await enqueue(tx, { id: randomIds.next('job'), queue: 'effects', payload: 1, now: clock.now() });
        throw new Error('the effects failed');
      },
      { onFailed: async () => failed.resolve() },
    );
    await failed.promise;
    await expect.poll(() => stateOf(id)).toBe('failed');
    expect((await countJobs(db)).has('effects')).toBe(false);
  });

  it('retries after a growing delay, and fails the job after the last attempt', async () => {
    const { id } = await put({ maxAttempts: 3 });
    const failed = event<[Job, TorporError]>();
    await start(
      async () => {
        throw new TorporError('timeout', 'too slow');
      },
      { onFailed: async (_, job, error) => failed.resolve([job, error]) },
    );
    await clock.untilAsleepFor(1_000);
    expect(await stateOf(id)).toBe('waiting');
    clock.advance(1_000);
    await clock.untilAsleepFor(2_000);
    clock.advance(2_000);
    const [job, error] = await failed.promise;
    expect([job.id, job.attempts, error.code]).toEqual([id, 3, 'timeout']);
    await expect.poll(() => stateOf(id)).toBe('failed');
    expect(faults).toHaveLength(3);
  });

  it('fails a job at once that is not to be retried', async () => {
    const { id } = await put();
    await start(
      async () => {
        throw new TorporError('invalid_request', 'never');
      },
      { retryDelayMs: (_, error) => (error.retryable ? 1 : undefined) },
    );
    await expect.poll(() => stateOf(id)).toBe('failed');
  });

  it('keeps its lease as long as the handler runs', async () => {
    const { id } = await put();
    const gate = event();
    const begun = event();
    await start(async () => {
      begun.resolve();
      await gate.promise;
      return undefined;
    });
    await begun.promise;
    for (let beat = 0; beat < 6; beat += 1) {
      await clock.untilAsleepFor(LEASE / 3);
      clock.advance(LEASE / 3);
    }
    await clock.untilAsleepFor(LEASE / 3);
    expect(
      await claim(db, { queues: ['q'], owner: 'other', now: clock.now(), leaseMs: LEASE }),
    ).toBeUndefined();
    gate.resolve();
    await expect.poll(() => stateOf(id)).toBe('done');
  });

  it('aborts the handler when another worker has the job, and writes none of its effects (R111)', async () => {
    const { id } = await put();
    const begun = event();
    const told = event<unknown>();
    await start(async (_, signal) => {
      begun.resolve();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      told.resolve(signal.reason);
      return (tx) => tx.query("UPDATE queue_jobs SET payload = 'stale'").then(() => undefined);
    });
    await begun.promise;
    // The clock of the other worker is ahead by the length of a lease, so it takes the job over.
    const other = await claim(db, {
      queues: ['q'],
      owner: 'other',
      now: clock.now() + LEASE,
      leaseMs: LEASE,
    });
    expect(other?.id).toBe(id);
    await clock.untilAsleepFor(LEASE / 3);
    clock.advance(LEASE / 3);
    expect(await told.promise).toBeInstanceOf(LeaseLost);
    await db.transaction((tx) => complete(tx, other as Job, clock.now()));
    const [row] = await db.query('SELECT state, payload FROM queue_jobs');
    expect(row).toEqual({ state: 'done', payload: 'null' });
    await expect.poll(() => faults).toMatchObject([{ code: 'conflict' }]);
  });

  it('aborts the handler when the lease cannot be renewed in time', async () => {
    await put();
    const begun = event();
    const told = event<unknown>();
    const stuck = event();
    const beating = { ...plain(db), transaction: (async () => stuck.promise) as Database['transaction'] };
    let claimed = false;
    const breaking: Database = {
      ...plain(db),
      transaction: (work) => {
        if (claimed) return beating.transaction(work);
        claimed = true;
        return db.transaction(work);
      },
    };
    await start(
      async (_, signal) => {
        begun.resolve();
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        told.resolve(signal.reason);
        return undefined;
      },
      { db: breaking },
    );
    await begun.promise;
    await clock.untilAsleepFor(LEASE / 3);
    clock.advance(LEASE / 3);
    await clock.untilAsleepFor((2 * LEASE) / 3);
    clock.advance((2 * LEASE) / 3);
    expect(await told.promise).toBeInstanceOf(LeaseLost);
    stuck.resolve();
  });

  it('continues after an outage of the database', async () => {
    let away = true;
    const flaky: Database = {
      ...plain(db),
      query: (sql, params) =>
        away ? Promise.reject(new TorporError('unreachable', 'away')) : db.query(sql, params),
    };
    await put();
    const done = event();
    await start(
      async () => {
        done.resolve();
        return undefined;
      },
      { db: flaky },
    );
    await clock.untilAsleepFor(POLL);
    expect(faults).toMatchObject([{ code: 'unreachable' }]);
    away = false;
    clock.advance(POLL);
    await done.promise;
  });

  describe('stop', () => {
    it('waits for handlers, and claims no new jobs', async () => {
      const first = await put();
      const begun = event();
      const gate = event();
      const worker = await start(async () => {
        begun.resolve();
        await gate.promise;
        return undefined;
      });
      await begun.promise;
      const stopped = worker.stop();
      const second = await put();
      gate.resolve();
      await stopped;
      expect([await stateOf(first.id), await stateOf(second.id)]).toEqual(['done', 'waiting']);
    });

    it('returns the job of an aborted handler without counting the attempt', async () => {
      const { id } = await put({ maxAttempts: 1 });
      const begun = event();
      const worker = await start(async (_, signal) => {
        begun.resolve();
        return await new Promise((__, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
        });
      });
      await begun.promise;
      await worker.stop();
      const job = await claim(db, { queues: ['q'], owner: 'next', now: clock.now(), leaseMs: LEASE });
      expect(job).toMatchObject({ id, attempts: 1 });
    });

    it('does not wait for ever for a handler that ignores its signal, and lets its lease run out', async () => {
      const { id } = await put();
      const begun = event();
      const worker = await start(async () => {
        begun.resolve();
        return await new Promise(() => {});
      });
      await begun.promise;
      const stopped = worker.stop();
      await clock.untilAsleepFor(1_500);
      clock.advance(1_500);
      await stopped;
      clock.advance(2 * LEASE);
      // A last renewal may still be under way and hold the row lock.
      const takeOver = () => claim(db, { queues: ['q'], owner: 'next', now: clock.now(), leaseMs: LEASE });
      await expect.poll(takeOver).toMatchObject({ id, attempts: 2 });
    });

    it('may be called before there was any job', async () => {
      const worker = await start(async () => undefined);
      await worker.stop();
      await worker.stop();
    });
  });
});

/** The methods of a database as plain properties, so that a test can replace one. */
function plain(db: Database): Database {
  return {
    dialect: db.dialect,
    query: (sql, params) => db.query(sql, params),
    transaction: (work) => db.transaction(work),
    listen: (channel, onNotice) => db.listen(channel, onNotice),
    close: () => db.close(),
  };
}
