import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('a running sandbox on %s', (kind) => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld(kind);
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  describe('the end of a run', () => {
    it('is set exactly or only extended, and the lifetime of later runs stays the same', async () => {
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

    it('is not added to a run without an end, unless it is set exactly', async () => {
      const { id } = (await engine.create(caller, {})).sandbox;
      await engine.setEnd('org', id, 50, 'at least');
      expect(await engine.get('org', id)).toMatchObject({ endsAt: null });
    });
  });

  describe('the parts that a pause keeps', () => {
    it('follow the pause mode of the sandbox in an automatic pause', async () => {
      const { id } = (await engine.create(caller, { timeoutSeconds: 60, pauseMode: 'files' })).sandbox;
      await engine.sweep();
      world.clock.advance(60_000);
      await engine.sweep();
      const { checkpointId } = await engine.get('org', id);
      if (checkpointId === null) throw new Error('It is not paused.');
      expect(await engine.checkpoint('org', checkpointId)).toMatchObject({ parts: { memory: false } });
    });

    it('are used without the memory when a resume asks for the files alone', async () => {
      const { id } = (await engine.create(caller, { fallback: [] })).sandbox;
      await engine.pause(caller, id);
      const resumed = await engine.resume(caller, id, { mode: 'files' });
      expect(resumed).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
    });

    it('are reported by a pause of a sandbox that is paused already', async () => {
      const { id } = (await engine.create(caller, {})).sandbox;
      expect(await engine.pause(caller, id)).toMatchObject({ paused: true });
      expect(await engine.pause(caller, id)).toMatchObject({ paused: false });
    });
  });

  it('is listed in the order of starts, in both directions and in pages', async () => {
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
