import { databaseKinds, ManualClock } from '@torpor/engine/testing';
import { type JobId, TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type BuildWorld, buildWorld, emptyBuilds, OWNER } from '../../testing/build-world.ts';
import { throwing } from '../../testing/fake-provider.ts';
import { readyBuild } from '../../testing/ready-build.ts';
import { BuildLog } from '../logs/build-log.ts';
import { textFile } from '../runners/generated-files.ts';
import { storeFiles } from './stored-files.ts';

const DAY = 24 * 3_600_000;
const SETTINGS = { keepFilesMs: 30 * DAY, keepLogsMs: 7 * DAY, keepBuildsPerProject: 3, retentionBatch: 2 };

describe.each(databaseKinds)('the files and logs of builds on %s', (kind) => {
  let world: BuildWorld;
  const clock = new ManualClock();
  beforeAll(async () => {
    world = await buildWorld(kind, { clock, working: false, settings: SETTINGS });
  });
  beforeEach(async () => {
    await emptyBuilds(world.db);
    world.provider.sandboxes.clear();
    world.reported.length = 0;
  });
  afterAll(() => world.dispose());

  /** A ready build with one file and one log line. */
  const build = async () => {
    const made = await readyBuild(world);
    await world.db.transaction((tx) => storeFiles(tx, made.id, [textFile('index.html', 'hi')]));
    const log = new BuildLog(world.ctx, made.id);
    log.line('stdout', 'hello');
    await log.flush();
    return made;
  };
  /** Runs rounds until all candidates were examined. */
  const rounds = async (count = 10) => {
    for (let i = 0; i < count; i++) {
      clock.advance(world.ctx.settings.retentionEveryMs);
      await world.builds.upkeep();
    }
  };
  const kept = async (id: JobId) => {
    const { files_expired, logs_expired } = await world.builds.status(OWNER, id);
    const [files] = await world.db.query('SELECT path FROM build_files WHERE job_id = $1', [id]);
    const [logs] = await world.db.query('SELECT id FROM build_logs WHERE job_id = $1', [id]);
    expect([files === undefined, logs === undefined]).toEqual([files_expired, logs_expired]);
    return [files !== undefined && 'files', logs !== undefined && 'logs'].filter(Boolean);
  };

  it('are removed after their retention, except for the newest ready build whose preview exists (R10, R48)', async () => {
    const old = await build();
    const newest = await build();
    clock.advance(SETTINGS.keepLogsMs + DAY);
    await rounds();
    expect(await kept(old.id)).toEqual(['files']);
    expect(await kept(newest.id)).toEqual(['files', 'logs']);
    clock.advance(SETTINGS.keepFilesMs);
    await rounds();
    expect(await kept(old.id)).toEqual([]);
    expect(await kept(newest.id)).toEqual(['files', 'logs']);
    await world.provider.kill(OWNER.org, newest.sandboxId);
    await rounds();
    expect(await kept(newest.id)).toEqual([]);
    expect(await world.row(old.id)).toMatchObject({ status: 'ready', buildVersion: 'build_v0_1' });
    expect((await world.builds.rebuild(OWNER, old.id)).build_version).toBe('build_v0_3');
  });

  it('are removed when the project has enough newer builds', async () => {
    const builds = [];
    for (let i = 0; i < 5; i++) builds.push(await build());
    await rounds();
    const left = await Promise.all(builds.map(({ id }) => kept(id)));
    const all = ['files', 'logs'];
    expect(left).toEqual([[], [], all, all, all]);
  });

  it('are answered with a typed 410 when they were removed', async () => {
    const { id } = await build();
    await build();
    clock.advance(SETTINGS.keepFilesMs + DAY);
    await rounds();
    const { signal } = new AbortController();
    const files = { code: 'expired', errorType: 'files_expired' };
    const logs = { code: 'expired', errorType: 'logs_expired' };
    await expect(world.builds.files(OWNER, id)).rejects.toMatchObject(files);
    await expect(world.builds.docs(OWNER, id)).rejects.toMatchObject(files);
    await expect(world.builds.logPage(OWNER, id, { limit: 1 })).rejects.toMatchObject(logs);
    await expect(world.builds.followLogs(OWNER, id, signal)).rejects.toMatchObject(logs);
    const iteration = { project_id: 'site', goal: 'g', previous_job_id: id };
    await expect(world.builds.begin(OWNER, iteration)).rejects.toMatchObject(files);
    expect(await world.db.query(`SELECT id FROM build_jobs WHERE status = 'queued'`)).toEqual([]);
    expect(await world.builds.status(OWNER, id)).toMatchObject({ docs_ready: false });
  });

  it('are kept while a build that is based on them is not over', async () => {
    const { id } = await build();
    await build();
    const { job_id } = await world.builds.rebuild(OWNER, id);
    clock.advance(SETTINGS.keepFilesMs + DAY);
    await world.db.transaction((tx) =>
      tx.query(`UPDATE build_jobs SET created_at = $2 WHERE id = $1`, [job_id, clock.now()]),
    );
    await rounds();
    expect(await kept(id)).toEqual(['files', 'logs']);
  });

  it('are kept while the sandbox cannot be read, which does not block other builds', async () => {
    const first = await build();
    await build();
    clock.advance(SETTINGS.keepFilesMs + DAY);
    const away = throwing(new TorporError('internal', 'A bug.'));
    world.provider.fail('find', ...Array.from({ length: 5 }, () => away));
    await rounds(4);
    world.provider.fail('find');
    expect(world.reported.map(({ what }) => what)).toContain('the files of a build could not be removed');
    await rounds();
    expect(await kept(first.id)).toEqual([]);
  });

  it('are examined in bounded rounds that skip builds that must be kept', async () => {
    const protectedOnes = [];
    for (let i = 0; i < SETTINGS.retentionBatch + 1; i++) {
      const made = await build();
      await world.db.transaction(async (tx) => {
        await tx.query('INSERT INTO build_projects (org, id, created_at) VALUES ($1, $2, 0)', [
          OWNER.org,
          `p${i}`,
        ]);
        await tx.query('UPDATE build_jobs SET project_id = $2 WHERE id = $1', [made.id, `p${i}`]);
      });
      protectedOnes.push(made);
    }
    const { id } = await build();
    await build();
    clock.advance(SETTINGS.keepFilesMs + DAY);
    await rounds(1);
    expect(await kept(id)).toEqual(['files', 'logs']);
    await rounds(3);
    expect(await kept(id)).toEqual([]);
    for (const made of protectedOnes) expect(await kept(made.id)).toEqual(['files', 'logs']);
  });
});
