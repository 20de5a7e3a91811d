import { databaseKinds, ManualClock } from '@torpor/engine/testing';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type BuildWorld, buildWorld, emptyBuilds, OWNER } from '../../testing/build-world.ts';
import type { Builds } from '../builds.ts';
import { DEFAULT_BUILD_SETTINGS } from '../settings.ts';
import { transition } from './transition.ts';
import { admitWaiting, queueScheduled } from './upkeep.ts';

const TO_READY = ['starting', 'scaffold', 'code', 'deps', 'checks', 'ready'] as const;
const NOON = Date.UTC(2026, 2, 14, 12);
const { small, medium, large } = DEFAULT_BUILD_SETTINGS.plans;

describe('the plans (R21)', () => {
  it('have the specified numbers', () => {
    expect([small, medium, large]).toMatchObject([
      { boost: 0, perUser: 2, perProject: 2, perDay: 5, iterations: 2, usualSeconds: 480 },
      { boost: 2, perUser: 3, perProject: 3, perDay: 50, iterations: 3, usualSeconds: 600 },
      { boost: 5, perUser: 10, perProject: 5, perDay: 200, iterations: 5, usualSeconds: 900 },
    ]);
    expect(DEFAULT_BUILD_SETTINGS.maxWaiting).toBe(100);
  });
});

describe.each(databaseKinds)('the queue of builds on %s', (kind) => {
  let world: BuildWorld;
  let builds: Builds;
  const planOfUser = { small: 'small', medium: 'medium', large: 'large', ada: 'small' };
  const clock = new ManualClock(NOON);
  beforeAll(async () => {
    world = await buildWorld(kind, { working: false, clock, settings: { planOfUser } });
  });
  beforeEach(() => emptyBuilds(world.db));
  afterAll(() => world.dispose());

  function waitingBuilds(settings = {}) {
    builds = world.another({ settings: { ...world.ctx.settings, ...settings } });
  }
  const put = (user: string, project = `${user}-${Math.random()}`) =>
    builds.enqueue({ org: 'acme', user }, { project_id: project, goal: 'g', runner: 'none' });

  it('respects the quota of the organisation, and admits more builds when it is raised (R21, R104)', async () => {
    waitingBuilds();
    const setQuotas = (runningBuilds: number | null, queuedBuilds: number | null) =>
      world.db.transaction((tx) =>
        tx.query(
          `INSERT INTO orgs (id, created_at, running_builds, queued_builds) VALUES ('acme', 1, $1, $2)
           ON CONFLICT (id) DO UPDATE SET running_builds = $1, queued_builds = $2`,
          [runningBuilds, queuedBuilds],
        ),
      );
    const inQueue = async () => (await world.db.query('SELECT id FROM queue_jobs')).length;
    await setQuotas(1, 1);
    await put('large');
    await put('large');
    expect(await inQueue()).toBe(1);
    const refused = put('medium');
    await expect(refused).rejects.toMatchObject({ code: 'quota_exceeded' });
    expect((await world.db.query('SELECT id FROM build_jobs')).length).toBe(2);
    await setQuotas(2, 0);
    await admitWaiting(world.ctx);
    expect(await inQueue()).toBe(2);
    await setQuotas(null, null);
  });

  it('is ordered by plan and then by arrival, with positions from one (R21)', async () => {
    waitingBuilds();
    const first = await put('small');
    const second = await put('small');
    const urgent = await put('large');
    const middle = await put('medium');
    const place = async (user: string, { job_id }: { job_id: string }) =>
      (await builds.job({ org: 'acme', user }, job_id)).position;
    expect(await place('large', urgent)).toBe(1);
    expect(await place('medium', middle)).toBe(2);
    expect(await place('small', first)).toBe(3);
    expect(await place('small', second)).toBe(4);
    const queued = await world.db.query<{ id: string }>(
      'SELECT id FROM queue_jobs ORDER BY priority, run_at',
    );
    expect(queued.map(({ id }) => id)).toEqual([urgent, middle, first, second].map(({ job_id }) => job_id));
  });

  it.each([
    ['small', 2, 2],
    ['medium', 3, 3],
    ['large', 10, 5],
  ])(
    'gives a user of the plan %s %i slots, and %i in one project (R21)',
    async (plan, perUser, perProject) => {
      const others = Array.from({ length: perProject + 2 }, (_, i) => `${plan}-${i}`);
      const plansOf = Object.fromEntries([plan, ...others].map((user) => [user, plan]));
      waitingBuilds({ plans: unlimited(), planOfUser: plansOf });
      for (let i = 0; i < perUser + 2; i++) await put(plan);
      const admitted = async () =>
        (await world.db.query('SELECT id FROM build_jobs WHERE admitted_at IS NOT NULL')).length;
      expect(await admitted()).toBe(perUser);
      for (const user of others) await put(user, 'one-project');
      expect(await admitted()).toBe(perUser + perProject);
    },
  );

  it('refuses further builds when a hundred wait (R21)', async () => {
    waitingBuilds({ maxWaiting: 3 });
    for (let i = 0; i < 3; i++) await put(`user-${i}`);
    await expect(put('one-more')).rejects.toMatchObject({
      code: 'capacity',
      message: expect.stringMatching(/^System busy\. Try again in [1-9]\d* minutes\.$/),
    });
  });

  it('estimates the wait from measured durations, with a margin (R21)', async () => {
    waitingBuilds();
    expect((await put('small')).estimated_wait).toEqual({
      seconds: 480,
      low_seconds: 336,
      high_seconds: 624,
      confidence: 'medium',
    });
    for (let i = 0; i < 9; i++) await put(`u${i}`);
    expect((await put('other')).estimated_wait).toMatchObject({ confidence: 'low' });
  });

  it('schedules builds beyond the daily limit for the next day (R21)', async () => {
    waitingBuilds();
    const jobs = [];
    for (let i = 0; i < 5; i++) jobs.push(await put('small'));
    expect(jobs.at(-1)?.usage).toEqual({
      jobs_used: 5,
      jobs_remaining: 0,
      iterations_used: 0,
      iterations_remaining: 2,
      daily_limit_resets_at: '2026-03-15T00:00:00.000Z',
    });
    const late = await put('small');
    expect(late).toMatchObject({
      status: 'scheduled',
      position: 0,
      message: 'Daily limit reached. Scheduled for tomorrow.',
    });
    await queueScheduled(world.ctx);
    expect((await world.row(late.job_id)).status).toBe('scheduled');
    clock.advance(12 * 3_600_000);
    await queueScheduled(world.ctx);
    expect(await world.statesOf(late.job_id)).toEqual(['queued', 'scheduled', 'queued']);
    expect((await builds.job({ org: 'acme', user: 'small' }, late.job_id)).usage.jobs_used).toBe(1);
    clock.advance(-12 * 3_600_000);
  });

  it('lets a queued or scheduled build be cancelled (R19)', async () => {
    waitingBuilds();
    const jobs = [];
    for (let i = 0; i < 6; i++) jobs.push(await put('small'));
    const owner = { org: 'acme', user: 'small' };
    const [first, , third, , , scheduled] = jobs.map(({ job_id }) => job_id);
    if (first === undefined || third === undefined || scheduled === undefined) throw new Error('too few');
    expect((await world.row(third)).admittedAt).toBeNull();
    for (const id of [first, scheduled]) {
      expect(await builds.cancel(owner, id)).toEqual({
        job_id: id,
        status: 'cancelled',
        message: 'Build cancelled',
      });
    }
    // The next build gets the slot.
    expect((await world.row(third)).admittedAt).not.toBeNull();
    await expect(builds.cancel(owner, first)).rejects.toMatchObject({ code: 'conflict' });
  });

  it('requires a confirmation after the plan’s iterations, and refuses more than three times as many (R21)', async () => {
    waitingBuilds({ plans: unlimited() });
    const start = async (previous?: string) => {
      const more = previous === undefined ? {} : { previous_job_id: previous as never };
      const { job_id } = await builds.begin(OWNER, { project_id: 'p', goal: 'g', ...more });
      await world.db.transaction(async (tx) => {
        for (const state of TO_READY) await transition(tx, job_id, state, { at: NOON });
      });
      return job_id;
    };
    const root = await start();
    await expect(builds.confirm(OWNER, root)).rejects.toThrow('not awaiting');
    let last = root;
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < 2; i++) last = await start(last);
      await expect(start(last)).rejects.toMatchObject({ code: 'conflict' });
      expect((await builds.job(OWNER, last)).usage).toMatchObject({
        iterations_used: 2 * (round + 1),
        iterations_remaining: 0,
      });
      if (round < 2) {
        expect(await builds.confirm(OWNER, last)).toMatchObject({
          job_id: root,
          iterations_granted: 2,
        });
      }
    }
    await expect(builds.confirm(OWNER, root)).rejects.toThrow('hard cap');
  });
});

/** The plans without a daily limit. */
function unlimited() {
  const { plans } = DEFAULT_BUILD_SETTINGS;
  return Object.fromEntries(Object.entries(plans).map(([name, plan]) => [name, { ...plan, perDay: 1_000 }]));
}
