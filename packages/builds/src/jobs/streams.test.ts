import { databaseKinds } from '@torpor/engine/testing';
import { type JobId, TorporError } from '@torpor/protocol';
import { describe, expect, it } from 'vitest';
import { APP, type BuildWorld, buildWorld, OWNER } from '../../testing/build-world.ts';
import { throwing } from '../../testing/fake-provider.ts';

describe.each(databaseKinds)('the event streams of a build on %s', (kind) => {
  it('contain its end, whenever the reader connects (R22)', { timeout: 60_000 }, async () => {
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
      const seen: string[] = [];
      const { signal } = new AbortController();
      const events = await world.builds.followEvents(OWNER, id, { after: 0, until: 'settled' }, signal);
      for await (const { event } of events) seen.push(event.status, event.type);
      // A reader of a build that becomes ready also gets the pause of its preview.
      return seen.includes('ready') && seen.at(-1) !== 'snapshot.updated' ? seen.at(-1) : seen.at(-2);
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

  const follow = async ({ builds }: BuildWorld, id: JobId, until: 'over' | 'settled', after = 0) => {
    const { signal } = new AbortController();
    const types: string[] = [];
    for await (const { event } of await builds.followEvents(OWNER, id, { after, until }, signal)) {
      types.push(event.type === 'build.stage.started' ? event.status : event.type);
    }
    return types;
  };

  it('report the pause of the preview, or why it failed, before they end (R22, R24, R26)', async () => {
    const world = await buildWorld(kind, { settings: { firstLookMs: 1 } });
    const held = Promise.withResolvers<void>();
    world.provider.fail('pause', () => held.promise);
    const { job_id } = await world.builds.begin(OWNER, { project_id: 'p', goal: 'g' });
    expect((await follow(world, job_id, 'over')).at(-1)).toBe('ready');
    const following = follow(world, job_id, 'settled');
    held.resolve();
    expect((await following).slice(-2)).toEqual(['ready', 'snapshot.updated']);

    world.provider.fail('pause', throwing(new TorporError('unreachable', 'The host is away.')));
    const second = await world.builds.begin(OWNER, { project_id: 'p', goal: 'g' });
    expect((await follow(world, second.job_id, 'settled')).slice(-2)).toEqual(['ready', 'snapshot.failed']);
    expect((await world.eventsOf(second.job_id)).at(-1)?.message).toContain('The host is away.');
    expect(await world.row(second.job_id)).toMatchObject({ status: 'ready', sandboxPaused: 0 });
    // A reader that reconnects gets exactly the events it missed.
    const { lastEvent } = await world.row(second.job_id);
    expect(await follow(world, second.job_id, 'settled', lastEvent - 1)).toEqual(['snapshot.failed']);
    expect(await follow(world, second.job_id, 'settled', lastEvent)).toEqual([]);
    await world.dispose();
  });

  it('end when the pause after ready takes too long (R22)', async () => {
    const world = await buildWorld(kind, { settings: { firstLookMs: 1, followAfterReadyMs: 0 } });
    const held = Promise.withResolvers<void>();
    world.provider.fail('pause', () => held.promise);
    const { job_id } = await world.builds.begin(OWNER, { project_id: 'p', goal: 'g' });
    expect((await follow(world, job_id, 'settled')).at(-1)).toBe('ready');
    held.resolve();
    await world.dispose();
  });

  it('end at once when nothing is paused: the build failed, or has no sandbox (R14, R22)', async () => {
    const world = await buildWorld(kind);
    world.provider.fail('create', throwing(new Error('no')));
    const failed = await world.builds.begin(OWNER, { project_id: 'p', goal: 'g' });
    expect((await follow(world, failed.job_id, 'settled')).at(-1)).toBe('failed');
    const none = await world.builds.begin(OWNER, { project_id: 'p', goal: 'g', runner: 'none' });
    expect((await follow(world, none.job_id, 'settled')).at(-1)).toBe('ready');
    await world.dispose();
  });
});
