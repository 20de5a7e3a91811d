/** Runs many builds at once, of users with different plans, some of which fail, and checks the limits and outcomes. */
import type { DatabaseKind } from '@torpor/engine/testing';
import { TorporError } from '@torpor/protocol';
import { expect } from 'vitest';
import type { BuildJob } from '../src/jobs/job.ts';
import { DEFAULT_BUILD_SETTINGS } from '../src/settings.ts';
import { APP, buildWorld } from './build-world.ts';

const USERS = { ann: 'small', bob: 'medium', cid: 'large', dee: 'large' } as const;
const { plans } = DEFAULT_BUILD_SETTINGS;
const WORKERS = 4;

/** All builds end; limits hold, higher priorities run first, versions are unique, and no sandbox is left. */
export async function checkConcurrentBuilds(kind: DatabaseKind, count: number): Promise<void> {
  /**
   * Half of the builds have high priority, and twenty of those have slots at once. When a worker takes the first of the
   * others, all high-priority builds are taken, but the last ones may still be starting in the other workers.
   */
  const first = Math.min(20, count / 2 - (WORKERS - 1));
  const order: string[] = [];
  const working = { now: 0, most: 0, ofUser: new Map<string, number>(), overCap: [] as string[] };
  const world = await buildWorld(kind, {
    working: false,
    settings: {
      planOfUser: USERS,
      plans: Object.fromEntries(
        Object.entries(plans).map(([name, plan]) => [name, { ...plan, perDay: 1_000 }]),
      ),
      workers: WORKERS,
      maxWaiting: count,
    },
    run: async ({ goal }) => {
      const user = goal.split(' ')[0] as keyof typeof USERS;
      order.push(user);
      working.now++;
      working.most = Math.max(working.most, working.now);
      const mine = (working.ofUser.get(user) ?? 0) + 1;
      working.ofUser.set(user, mine);
      if (mine > (plans[USERS[user]]?.perUser ?? 0)) working.overCap.push(user);
      await new Promise((resolve) => setTimeout(resolve, 2));
      working.now--;
      working.ofUser.set(user, (working.ofUser.get(user) ?? 1) - 1);
      if (goal.endsWith('fails')) throw new TorporError('timeout', 'The model took too long.');
      if (goal.endsWith('breaks')) throw new Error('a bug');
      return APP;
    },
  });
  const users = Object.keys(USERS) as (keyof typeof USERS)[];
  const jobs = [];
  for (let i = 0; i < count; i++) {
    const user = users[i % 4] ?? 'ann';
    const end = i % 10 === 3 ? 'fails' : i % 10 === 6 ? 'breaks' : 'works';
    const request = { project_id: `${user}-${i % 8}`, goal: `${user} ${i} ${end}` };
    jobs.push({ user, end, ...(await world.builds.begin({ org: 'acme', user }, request)) });
  }
  await expect(
    world.builds.begin({ org: 'acme', user: 'ann' }, { project_id: 'p', goal: 'g' }),
  ).rejects.toMatchObject({ code: 'capacity' });
  await world.builds.start();
  const ended: BuildJob[] = [];
  for (const { job_id } of jobs) ended.push(await world.ended(job_id));

  expect(ended.map(({ status }) => status)).toEqual(
    jobs.map(({ end }) => (end === 'works' ? 'ready' : 'failed')),
  );
  expect(working.most).toBeLessThanOrEqual(WORKERS);
  expect(working.overCap).toEqual([]);
  // The users with ten slots occupy all workers until only the others are left.
  const urgent = order.slice(0, first).filter((user) => USERS[user as keyof typeof USERS] === 'large');
  expect(urgent).toHaveLength(first);
  const versions = ended
    .filter(({ status }) => status === 'ready')
    .map(({ projectId, buildVersion }) => `${projectId} ${buildVersion}`);
  expect(new Set(versions).size).toBe(versions.length);
  const failed = new Set(ended.filter(({ status }) => status === 'failed').map(({ id }) => id));
  expect(world.provider.live.filter(({ jobId }) => failed.has(jobId))).toEqual([]);
  const open = await world.db.query(`SELECT id FROM queue_jobs WHERE state IN ('waiting')`);
  expect(open).toEqual([]);
  await world.dispose();
}
