import { TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds, type FreshDatabase, freshDatabase } from '../../testing/fresh-database.ts';
import type { Database } from '../ports/database.ts';
import { randomIds } from '../ports/ids.ts';
import { type ClaimOptions, claim, nextClaimableAt } from './claim.ts';
import { countJobs } from './count-jobs.ts';
import { deleteEndedJobs } from './delete-ended.ts';
import { enqueue, type NewJob } from './enqueue.ts';
import { type Job, LeaseLost } from './job.ts';
import { complete, expireLeases, fail, heartbeat, release, requireLease, withdraw } from './lease.ts';

const NOW = 1_700_000_000_000;
const LEASE = 1_000;

describe.each(databaseKinds)('the queue on %s', (kind) => {
  let fresh: FreshDatabase;
  let db: Database;

  beforeAll(async () => {
    fresh = await freshDatabase(kind);
    db = fresh.db;
  });
  beforeEach(async () => {
    await db.transaction((tx) => tx.query('DELETE FROM queue_jobs'));
  });
  afterAll(() => fresh.dispose());

  const put = (job: Partial<NewJob> = {}) =>
    db.transaction((tx) =>
      enqueue(tx, { id: randomIds.next('job'), queue: 'q', payload: null, now: NOW, ...job }),
    );
  const take = (options: Partial<ClaimOptions> = {}, from = db) =>
    claim(from, { queues: ['q'], owner: 'me', now: NOW, leaseMs: LEASE, ...options });
  async function taken(options: Partial<ClaimOptions> = {}): Promise<Job> {
    const job = await take(options);
    if (job === undefined) throw new Error('There was nothing to claim.');
    return job;
  }
  const stored = async (id: string) => {
    const [row] = await db.query('SELECT * FROM queue_jobs WHERE id = $1', [id]);
    return row;
  };
  const error = new TorporError('timeout', 'It took too long.');

  describe('enqueue', () => {
    it("belongs to the caller's transaction", async () => {
      const attempt = db.transaction(async (tx) => {
        await enqueue(tx, { id: randomIds.next('job'), queue: 'q', payload: null, now: NOW });
        throw new Error('roll back');
      });
      await expect(attempt).rejects.toThrow('roll back');
      expect(await take()).toBeUndefined();
    });

    it('notifies listeners after the commit', async () => {
      const heard = Promise.withResolvers<void>();
      const stop = await db.listen('queue', () => heard.resolve());
      await put();
      await heard.promise;
      await stop();
    });

    it('adds one job per key and queue until that job has ended', async () => {
      const first = await put({ dedupeKey: 'k' });
      expect(await put({ dedupeKey: 'k' })).toEqual({ id: first.id, created: false, state: 'waiting' });
      expect(await put({ dedupeKey: 'k', queue: 'other' })).toMatchObject({ created: true });
      const job = await taken();
      expect(await put({ dedupeKey: 'k' })).toEqual({ id: first.id, created: false, state: 'leased' });
      await db.transaction((tx) => complete(tx, job, NOW));
      expect(await put({ dedupeKey: 'k' })).toMatchObject({ created: true, state: 'waiting' });
    });

    it('adds any number of jobs without a key', async () => {
      await Promise.all([put(), put(), put()]);
      expect((await countJobs(db)).get('q')?.waiting).toBe(3);
    });

    it('adds one job for many concurrent calls with the same key', async () => {
      const answers = await Promise.all(Array.from({ length: 20 }, () => put({ dedupeKey: 'k' })));
      expect(answers.filter(({ created }) => created)).toHaveLength(1);
      expect(new Set(answers.map(({ id }) => id)).size).toBe(1);
    });
  });

  describe('claim', () => {
    it('returns the job with its payload and a lease', async () => {
      const { id } = await put({ payload: { a: [1, 'ü'] }, priority: 3, maxAttempts: 2 });
      expect(await take()).toEqual({
        id,
        queue: 'q',
        dedupeKey: null,
        priority: 3,
        runAt: NOW,
        payload: { a: [1, 'ü'] },
        attempts: 1,
        maxAttempts: 2,
        owner: 'me',
        leaseUntil: NOW + LEASE,
        token: 1,
        lastError: null,
        createdAt: NOW,
      });
      expect(await stored(id)).toMatchObject({
        state: 'leased',
        lease_owner: 'me',
        lease_until: NOW + LEASE,
      });
      expect(await take()).toBeUndefined();
    });

    it('gives 50 parallel claims 50 different jobs', async () => {
      await Promise.all(Array.from({ length: 50 }, (_, i) => put({ priority: i % 3 })));
      const jobs = await Promise.all(Array.from({ length: 50 }, () => take()));
      expect(new Set(jobs.map((job) => job?.id)).size).toBe(50);
      expect(jobs).not.toContain(undefined);
      expect(await take()).toBeUndefined();
    });

    it('gives different jobs to different servers', async () => {
      const other = await fresh.openAnother();
      await Promise.all(Array.from({ length: 20 }, () => put()));
      const jobs = await Promise.all(Array.from({ length: 20 }, (_, i) => take({}, i % 2 ? db : other)));
      expect(new Set(jobs.map((job) => job?.id)).size).toBe(20);
      await other.close();
    });

    it('claims by priority, then by time, and skips jobs that are not yet due', async () => {
      const [late, early, urgent, future] = [
        await put({ priority: 1, runAt: NOW - 1 }),
        await put({ priority: 1, runAt: NOW - 2 }),
        await put({ priority: -5, runAt: NOW }),
        await put({ priority: -9, runAt: NOW + 1 }),
      ];
      const order = [await take(), await take(), await take(), await take()];
      expect(order.map((job) => job?.id)).toEqual([urgent.id, early.id, late.id, undefined]);
      expect((await take({ now: NOW + 1 }))?.id).toBe(future.id);
    });

    it('reads the queues in the given order, and no others', async () => {
      const inB = await put({ queue: 'b', priority: 0 });
      const inA = await put({ queue: 'a', priority: 9 });
      await put({ queue: 'c', priority: -1 });
      const queues = ['a', 'b'];
      const order = [await take({ queues }), await take({ queues }), await take({ queues })];
      expect(order.map((job) => job?.id)).toEqual([inA.id, inB.id, undefined]);
    });

    it('takes over a job whose worker is gone, and says why', async () => {
      await put();
      const dead = await taken({ owner: 'dead' });
      expect(await take({ now: dead.leaseUntil - 1 })).toBeUndefined();
      const job = await taken({ now: dead.leaseUntil, owner: 'alive' });
      expect(job).toMatchObject({
        id: dead.id,
        owner: 'alive',
        attempts: 2,
        lastError: { code: 'unreachable' },
      });
      expect(job.token).toBeGreaterThan(dead.token);
    });

    it('fails a job whose workers died too often, together with the writes of onExhausted (R20)', async () => {
      await put({ maxAttempts: 2, priority: 1 });
      const healthy = await put({ priority: 1, runAt: NOW + 5 * LEASE });
      await taken();
      const job = await taken({ now: NOW + LEASE });
      const told: unknown[] = [];
      const next = await take({
        now: NOW + 10 * LEASE,
        onExhausted: async (tx, failed, why) => {
          told.push([failed.id, failed.attempts, why.code]);
          await enqueue(tx, { id: randomIds.next('job'), queue: 'mourning', payload: failed.id, now: NOW });
        },
      });
      expect(told).toEqual([[job.id, 2, 'unreachable']]);
      expect(next?.id).toBe(healthy.id);
      expect(await stored(job.id)).toMatchObject({
        state: 'failed',
        ended_at: NOW + 10 * LEASE,
        attempts: 2,
      });
      expect(String((await stored(job.id))?.['last_error'])).toMatch(/lease run out/);
      expect((await taken({ queues: ['mourning'] })).payload).toBe(job.id);
    });

    it('leaves the job as it is when onExhausted fails', async () => {
      await put({ maxAttempts: 1 });
      const { id } = await taken();
      const onExhausted = async () => {
        throw new Error('not now');
      };
      await expect(take({ now: NOW + LEASE, onExhausted })).rejects.toThrow('not now');
      expect(await stored(id)).toMatchObject({ state: 'leased' });
    });

    it('tells when the next job can be claimed', async () => {
      expect(await nextClaimableAt(db, ['q'])).toBeUndefined();
      await put({ runAt: NOW - 5 });
      await taken();
      expect(await nextClaimableAt(db, ['q'])).toBe(NOW + LEASE);
      await put({ runAt: NOW + 7, queue: 'other', priority: 9 });
      expect(await nextClaimableAt(db, ['q', 'other', 'empty'])).toBe(NOW + 7);
    });
  });

  describe('a lease', () => {
    it('is extended by a heartbeat', async () => {
      await put();
      const job = await taken();
      await heartbeat(db, job, NOW + 900, LEASE);
      expect(await take({ now: NOW + 1_899 })).toBeUndefined();
      expect(await take({ now: NOW + 1_900 })).toMatchObject({ id: job.id });
    });

    it('ends with the job, in one transaction with its effects', async () => {
      await put();
      const job = await taken();
      const attempt = db.transaction(async (tx) => {
        await complete(tx, job, NOW);
        throw new Error('the effects failed');
      });
      await expect(attempt).rejects.toThrow('the effects failed');
      expect(await stored(job.id)).toMatchObject({ state: 'leased' });
      await db.transaction((tx) => complete(tx, job, NOW + 5));
      expect(await stored(job.id)).toMatchObject({ state: 'done', ended_at: NOW + 5, lease_owner: null });
      expect(await take({ now: NOW + 10 * LEASE })).toBeUndefined();
    });

    it('that ran out still counts while no other worker has the job', async () => {
      await put();
      const job = await taken();
      await db.transaction((tx) => complete(tx, job, NOW + 10 * LEASE));
      expect(await stored(job.id)).toMatchObject({ state: 'done' });
    });

    describe.each<[string, (held: Job) => Promise<unknown>]>([
      ['complete', (held) => db.transaction((tx) => complete(tx, held, NOW))],
      ['fail', (held) => db.transaction((tx) => fail(tx, held, { error, now: NOW, retryAt: NOW }))],
      ['release', (held) => db.transaction((tx) => release(tx, held))],
      ['heartbeat', (held) => heartbeat(db, held, NOW + 99 * LEASE, LEASE)],
    ])('that was lost does not let its former worker %s', (_, act) => {
      it('when another worker holds the job (R111)', async () => {
        await put();
        const stale = await taken({ owner: 'stale' });
        await taken({ owner: 'new', now: stale.leaseUntil });
        const before = await stored(stale.id);
        await expect(act(stale)).rejects.toBeInstanceOf(LeaseLost);
        expect(await stored(stale.id)).toEqual(before);
      });

      it('when the job has ended', async () => {
        await put();
        const job = await taken();
        await db.transaction((tx) => complete(tx, job, NOW));
        const before = await stored(job.id);
        await expect(act(job)).rejects.toMatchObject({ code: 'conflict' });
        expect(await stored(job.id)).toEqual(before);
      });
    });

    it('that was lost rolls back the effects of its former worker', async () => {
      await put();
      const stale = await taken();
      await taken({ now: stale.leaseUntil });
      const attempt = db.transaction(async (tx) => {
        await enqueue(tx, { id: randomIds.next('job'), queue: 'effects', payload: 1, now: NOW });
        await complete(tx, stale, NOW);
      });
      await expect(attempt).rejects.toBeInstanceOf(LeaseLost);
      expect(await take({ queues: ['effects'] })).toBeUndefined();
    });
  });

  describe('a withdrawn job', () => {
    it('has ended, and what its worker writes fails (R19)', async () => {
      await put();
      const held = await taken();
      await db.transaction((tx) => requireLease(tx, held));
      await db.transaction((tx) => withdraw(tx, held.id, NOW + 5));
      expect(await stored(held.id)).toMatchObject({ state: 'failed', ended_at: NOW + 5, lease_owner: null });
      await expect(db.transaction((tx) => requireLease(tx, held))).rejects.toThrow(LeaseLost);
      await expect(db.transaction((tx) => complete(tx, held, NOW))).rejects.toThrow(LeaseLost);
      expect(await take()).toBeUndefined();
    });

    it('that has ended already stays as it is', async () => {
      await put();
      const held = await taken();
      await db.transaction((tx) => complete(tx, held, NOW));
      await db.transaction((tx) => withdraw(tx, held.id, NOW + 5));
      expect(await stored(held.id)).toMatchObject({ state: 'done', ended_at: NOW });
    });
  });

  describe('the only server', () => {
    it('does not wait for the leases of earlier servers (R20)', async () => {
      await put();
      await put({ queue: 'other' });
      const held = await taken();
      await taken({ queues: ['other'] });
      await db.transaction((tx) => expireLeases(tx, 'q', NOW));
      expect(await take({ queues: ['other'] })).toBeUndefined();
      expect(await taken()).toMatchObject({ id: held.id, attempts: 2 });
      await expect(db.transaction((tx) => requireLease(tx, held))).rejects.toThrow(LeaseLost);
    });
  });

  describe('fail', () => {
    it('returns the job to the queue until its next attempt, with the error', async () => {
      await put();
      const job = await taken();
      const state = await db.transaction((tx) => fail(tx, job, { error, now: NOW, retryAt: NOW + 50 }));
      expect(state).toBe('waiting');
      expect(await take({ now: NOW + 49 })).toBeUndefined();
      expect(await take({ now: NOW + 50 })).toMatchObject({ attempts: 2, lastError: error.toBody() });
    });

    it.each([
      ['no attempt is left', { retryAt: NOW }, 1],
      ['it is not to be tried again', {}, 5],
    ])('ends the job when %s', async (_, retry, maxAttempts) => {
      await put({ maxAttempts });
      const job = await taken();
      const state = await db.transaction((tx) => fail(tx, job, { error, now: NOW + 1, ...retry }));
      expect(state).toBe('failed');
      expect(await stored(job.id)).toMatchObject({ state: 'failed', ended_at: NOW + 1, lease_until: null });
      expect(await take({ now: NOW + 10 * LEASE })).toBeUndefined();
    });
  });

  describe('release', () => {
    it('returns the job as if it had not been claimed', async () => {
      await put({ maxAttempts: 1 });
      const job = await taken();
      await db.transaction((tx) => release(tx, job));
      const again = await taken();
      expect(again).toMatchObject({ id: job.id, attempts: 1 });
      expect(again.token).toBeGreaterThan(job.token);
    });
  });

  describe('the table', () => {
    it('counts jobs by queue and state', async () => {
      await Promise.all([put(), put(), put(), put({ queue: 'other' })]);
      await taken();
      const done = await taken();
      await db.transaction((tx) => complete(tx, done, NOW));
      expect(Object.fromEntries(await countJobs(db))).toEqual({
        q: { waiting: 1, leased: 1, done: 1, failed: 0 },
        other: { waiting: 1, leased: 0, done: 0, failed: 0 },
      });
    });

    it('deletes jobs that ended long ago, a few at a time, and no others', async () => {
      await Promise.all(Array.from({ length: 5 }, () => put()));
      for (const endedAt of [NOW, NOW + 1, NOW + 2, NOW + 3]) {
        const job = await taken();
        await db.transaction((tx) => complete(tx, job, endedAt));
      }
      const forget = () => db.transaction((tx) => deleteEndedJobs(tx, NOW + 3, 2));
      expect([await forget(), await forget(), await forget()]).toEqual([2, 1, 0]);
      expect((await countJobs(db)).get('q')).toMatchObject({ waiting: 1, done: 1 });
    });

    it('cannot hold a lease without an owner, or an end without a time', async () => {
      const { id } = await put();
      const set = (change: string) =>
        db.transaction((tx) => tx.query(`UPDATE queue_jobs SET ${change} WHERE id = $1`, [id]));
      await expect(set("state = 'leased', lease_until = 1")).rejects.toMatchObject({ kind: 'check' });
      await expect(set("state = 'done'")).rejects.toMatchObject({ kind: 'check' });
      await expect(set("state = 'lost'")).rejects.toMatchObject({ kind: 'check' });
    });
  });
});
