import type { CheckpointId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('kept checkpoints on %s', (kind) => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld(kind);
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  const kept = async (page = {}) =>
    (await engine.keptCheckpoints('org', { limit: 100, ...page })).map(({ id }) => id);

  it('are listed newest first, in pages, by sandbox and by template, for their organisation only', async () => {
    const { id: first } = (await engine.create(caller, {})).sandbox;
    const { id: second } = (await engine.create(caller, {})).sandbox;
    const ids: CheckpointId[] = [];
    for (const id of [first, first, second]) {
      world.clock.advance(1);
      ids.unshift((await engine.snapshot(caller, id)).checkpoint.id);
    }
    // A checkpoint that only a pause made is not listed.
    await engine.pause(caller, second);
    await engine.nameTemplate('org', { name: 'mine', from: ids[1] as CheckpointId });
    expect(await kept()).toEqual(ids);
    expect(await kept({ sandboxId: second })).toEqual([ids[0]]);
    expect(await kept({ template: 'mine' })).toEqual([ids[1]]);
    const [newest] = await engine.keptCheckpoints('org', { limit: 1 });
    expect(await kept({ after: newest })).toEqual(ids.slice(1));
    expect(await engine.keptCheckpoints('other', { limit: 100 })).toEqual([]);
    expect(await engine.keptCheckpoint('org', ids[1] as CheckpointId)).toMatchObject({ templates: ['mine'] });
    expect(await engine.keptCheckpoint('other', ids[1] as CheckpointId)).toBeUndefined();
  });

  it('are released once, with their names, without an effect on sandboxes that use them', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    world.runtime.work(id, '/seeded', 'yes');
    const { id: checkpoint } = (await engine.snapshot(caller, id, { name: 'here' })).checkpoint;
    await engine.nameTemplate('org', { name: 'mine', from: checkpoint });
    const child = (await engine.create(caller, { template: 'mine' })).sandbox;
    expect(await engine.releaseCheckpoint('other', checkpoint)).toBe(false);
    expect(await engine.releaseCheckpoint('org', checkpoint)).toBe(true);
    expect(await engine.releaseCheckpoint('org', checkpoint)).toBe(false);
    expect(await kept()).toEqual([]);
    await expect(engine.template('org', 'mine')).rejects.toMatchObject({ code: 'not_found' });
    await engine.reconcile();
    await engine.pause(caller, child.id);
    await engine.resume(caller, child.id);
    expect(world.runtime.look(child.id)?.files).toMatchObject({ '/seeded': 'yes' });
  });

  it('are deleted at once when no sandbox uses them', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const { id: checkpoint } = (await engine.snapshot(caller, id)).checkpoint;
    await engine.kill(caller, id);
    await engine.releaseCheckpoint('org', checkpoint);
    expect(await engine.checkpoint('org', checkpoint)).toMatchObject({ state: 'deleted' });
  });

  it('give their name to a newer checkpoint when the caller asks for it', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const { id: older } = (await engine.snapshot(caller, id)).checkpoint;
    const { id: newer } = (await engine.snapshot(caller, id)).checkpoint;
    await engine.nameTemplate('org', { name: 'mine', from: older });
    await expect(engine.nameTemplate('org', { name: 'mine', from: newer })).rejects.toMatchObject({
      code: 'conflict',
    });
    await engine.nameTemplate('org', { name: 'mine', from: newer }, 'replace');
    expect(await engine.template('org', 'mine')).toMatchObject({ checkpointId: newer });
    expect((await kept()).toSorted()).toEqual([older, newer].toSorted());
  });
});
