import { databaseKinds } from '@torpor/engine/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BuildWorld, buildWorld, OWNER } from '../../testing/build-world.ts';
import { submit } from './submit.ts';
import { nextVersion, predictVersion } from './version.ts';

describe('the next version (R8)', () => {
  it.each([
    [[], 1],
    [['build_v0_2'], 3],
    [['build_v0_9', 'build_v0_10'], 11],
    [['nonsense', 'build_v1_7', 'build_v0_', 'build_v0_-3', null], 1],
    [['build_v0_4', 'build_v0_x'], 5],
  ])('after %j is %i', (ready, number) => {
    expect(nextVersion(ready)).toBe(`build_v0_${number}`);
  });
});

describe.each(databaseKinds)('versions on %s', (kind) => {
  let world: BuildWorld;
  beforeAll(async () => {
    world = await buildWorld(kind, { settings: { workers: 4 } });
  });
  afterAll(() => world.dispose());

  async function seed(project: string, rows: readonly [version: string, status: 'ready' | 'failed'][]) {
    for (const [version, status] of rows) {
      const { id } = await submit(world.ctx, { ...OWNER, projectId: project, goal: 'g', runner: 'none' });
      await world.ended(id);
      await world.db.transaction((tx) =>
        tx.query('UPDATE build_jobs SET build_version = $2, status = $3, debug_id = $4 WHERE id = $1', [
          id,
          version,
          status,
          'd',
        ]),
      );
    }
  }

  it.each([
    ['none', [], 'build_v0_1'],
    ['two', [['build_v0_2', 'ready']], 'build_v0_3'],
    [
      'failed',
      [
        ['build_v0_2', 'ready'],
        ['build_v0_9', 'failed'],
      ],
      'build_v0_3',
    ],
    ['odd', [['a foreign version', 'ready']], 'build_v0_1'],
  ] as const)('count what is ready and nothing else: %s (R8)', async (project, rows, expected) => {
    await seed(project, rows as never);
    expect(await predictVersion(world.db, OWNER.org, project)).toBe(expected);
    const started = await world.builds.begin(OWNER, { project_id: project, goal: 'g' });
    expect(started).toMatchObject({ status: 'queued', build_version: expected });
    expect((await world.ended(started.job_id)).buildVersion).toBe(expected);
  });

  it('of two concurrent builds are different (R9)', async () => {
    const request = { project_id: 'both', goal: 'g' };
    const jobs = await Promise.all([1, 2, 3].map(() => world.builds.begin(OWNER, request)));
    const ended = await Promise.all(jobs.map(({ job_id }) => world.ended(job_id)));
    const versions = ended.map(({ buildVersion }) => buildVersion).sort();
    expect(versions).toEqual(['build_v0_1', 'build_v0_2', 'build_v0_3']);
  });
});
