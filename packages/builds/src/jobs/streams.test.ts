import { databaseKinds } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { APP, buildWorld, OWNER } from '../../testing/build-world.ts';
import { throwing } from '../../testing/fake-provider.ts';

describe.each(databaseKinds)('those who follow a build on %s', (kind) => {
  it('see its end, whenever they come (R22)', { timeout: 60_000 }, async () => {
    const READERS = kind === 'sqlite' ? 1_000 : 60;
    const BUILDS = 6;
    const world = await buildWorld(kind, {
      settings: { firstLookMs: 1, longestLookMs: 2, workers: 4 },
      run: async ({ output }) => {
        output('stdout', 'hello\n');
        return APP;
      },
    });
    world.provider.fail('create', ...Array.from({ length: 3 }, () => throwing(new Error('no'))));
    const readers: Promise<string | undefined>[] = [];
    const follow = async (id: `job_${string}`) => {
      let last: string | undefined;
      const { signal } = new AbortController();
      for await (const { event } of await world.builds.followEvents(OWNER, id, 0, signal))
        last = event.status;
      return last;
    };
    const followLogs = async (id: `job_${string}`) => {
      let last: string | undefined;
      const { signal } = new AbortController();
      for await (const item of await world.builds.followLogs(OWNER, id, signal)) {
        last = item.is === 'done' ? item.status : 'unfinished';
      }
      return last;
    };
    for (let build = 0; build < BUILDS; build++) {
      const { job_id } = await world.builds.begin(OWNER, { project_id: `p${build}`, goal: 'g' });
      for (let i = 0; i < Math.ceil(READERS / BUILDS); i++) {
        readers.push(i % 4 === 0 ? followLogs(job_id) : follow(job_id));
        if (i % 7 === 0) await new Promise((resolve) => setTimeout(resolve, Math.random() * 4));
      }
    }
    const ends = await Promise.all(readers);
    expect(ends.filter((end) => end !== 'ready' && end !== 'failed')).toEqual([]);
    expect(ends.length).toBeGreaterThanOrEqual(READERS);
    await world.dispose();
  });
});
