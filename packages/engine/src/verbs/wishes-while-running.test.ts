import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('a sandbox that runs, on %s', (kind) => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld(kind);
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  describe('the end of a run', () => {
    it('is set exactly or only later, and the lifetime of later runs stays', async () => {
      const { id } = (await engine.create(caller, { timeoutSeconds: 100 })).sandbox;
      const end = async () => ((await engine.get('org', id)).endsAt ?? 0) - world.clock.now();
      await engine.setEnd('org', id, 50, 'at least');
      expect(await end()).toBe(100_000);
      await engine.setEnd('org', id, 200, 'at least');
      expect(await end()).toBe(200_000);
      await engine.setEnd('org', id, 10, 'exactly');
      expect(await end()).toBe(10_000);
      await engine.pause(caller, id);
      await expect(engine.setEnd('org', id, 10, 'exactly')).rejects.toMatchObject({ code: 'conflict' });
      await expect(engine.setEnd('other', id, 10, 'exactly')).rejects.toMatchObject({ code: 'not_found' });
      await engine.resume(caller, id);
      expect(await end()).toBe(100_000);
    });

    it('does not come to one that has none, unless it is set', async () => {
      const { id } = (await engine.create(caller, {})).sandbox;
      await engine.setEnd('org', id, 50, 'at least');
      expect(await engine.get('org', id)).toMatchObject({ endsAt: null });
    });
  });

  describe('what it keeps', () => {
    it('in an automatic pause is what was asked for', async () => {
      const { id } = (await engine.create(caller, { timeoutSeconds: 60, pauseMode: 'files' })).sandbox;
      await engine.sweep();
      world.clock.advance(60_000);
      await engine.sweep();
      const { checkpointId } = await engine.get('org', id);
      if (checkpointId === null) throw new Error('It is not paused.');
      expect(await engine.checkpoint('org', checkpointId)).toMatchObject({ parts: { memory: false } });
    });

    it('may be its files alone at a resume, though there is memory', async () => {
      const { id } = (await engine.create(caller, { fallback: [] })).sandbox;
      await engine.pause(caller, id);
      const resumed = await engine.resume(caller, id, { mode: 'files' });
      expect(resumed).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
    });

    it('is said by a pause that found nothing to do', async () => {
      const { id } = (await engine.create(caller, {})).sandbox;
      expect(await engine.pause(caller, id)).toMatchObject({ paused: true });
      expect(await engine.pause(caller, id)).toMatchObject({ paused: false });
    });
  });

  it('is listed by its start, either way round, in pages', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) {
      world.clock.advance(1);
      ids.push((await engine.create(caller, {})).sandbox.id);
    }
    const list = async (page: Partial<Parameters<Engine['listByStart']>[1]>) =>
      (await engine.listByStart({ org: 'org' }, { order: 'oldest first', limit: 10, ...page })).map(
        ({ id }) => id,
      );
    expect(await list({})).toEqual(ids);
    expect(await list({ order: 'newest first' })).toEqual(ids.toReversed());
    const [first] = await engine.listByStart({ org: 'org' }, { order: 'oldest first', limit: 1 });
    const after = { startedAt: first?.startedAt ?? 0, id: first?.id ?? '' };
    expect(await list({ after })).toEqual(ids.slice(1));
    expect(await list({ since: after.startedAt + 1 })).toEqual(ids.slice(1));
    expect(await list({ template: 'other' })).toEqual([]);
  });
});
