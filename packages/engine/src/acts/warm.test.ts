import type { SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeWorld, type World } from '../../testing/world.ts';

describe('a paused sandbox that the runtime keeps in memory', () => {
  let world: World;
  const caller = { org: 'org' };

  beforeEach(async () => {
    world = await makeWorld('sqlite');
  });
  afterEach(() => world.dispose());

  async function asleep(): Promise<SandboxId> {
    const { sandbox } = await world.engine.create(caller, {});
    world.runtime.work(sandbox.id, 'a', 'one');
    const paused = await world.engine.pause(caller, sandbox.id);
    expect(paused.sandbox).toMatchObject({ state: 'paused', warm: true, warmReason: null });
    return sandbox.id;
  }

  it('is shown as warm while it is paused, and goes on with its memory', async () => {
    const id = await asleep();
    await world.engine.reconcile();
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'paused', warm: true });
    const { sandbox } = await world.engine.resume(caller, id);
    expect(sandbox).toMatchObject({ state: 'running', warm: null });
    expect(world.runtime.look(id)).toEqual({ files: expect.objectContaining({ a: 'one' }), counter: 1 });
  });

  it('is cold after a pause that kept only its files', async () => {
    const { sandbox } = await world.engine.create(caller, {});
    const paused = await world.engine.pause(caller, sandbox.id, { mode: 'files' });
    expect(paused.sandbox).toMatchObject({ warm: false, warmReason: null });
  });

  it('has a fault of its files, and none of its memory, when a start that could not adopt it finds the files damaged', async () => {
    const id = await asleep();
    const { checkpointId } = await world.engine.get('org', id);
    if (checkpointId === null) throw new Error('It has no checkpoint.');
    // The runtime of these tests reads the checkpoint also when it adopts, as a runtime does whose adoption fails.
    world.store.damage(checkpointId, 'missing', 'image.json');
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'lost' });
    const { faults } = await world.engine.checkpoint('org', checkpointId);
    expect(faults).toMatchObject([{ part: 'files', found: 'inspection' }]);
  });

  it('is found again by another server', async () => {
    const id = await asleep();
    const other = await world.another();
    await other.reconcile();
    expect(await other.get('org', id)).toMatchObject({ warm: true });
    await other.resume(caller, id);
    expect(world.runtime.look(id)?.counter).toBe(1);
  });

  it('is not in memory any more after a kill, nor after a rollback to another checkpoint', async () => {
    const { id: first } = (await world.engine.create(caller, {})).sandbox;
    const { checkpoint } = await world.engine.pause(caller, first);
    await world.engine.resume(caller, first);
    world.runtime.work(first, 'a', 'two');
    const last = await world.engine.pause(caller, first);
    await world.engine.rollback(caller, first, { checkpointId: checkpoint.id });
    expect(world.runtime.warmth(first, last.checkpoint.id).warm).toBe(false);
    expect(world.runtime.look(first)?.files).not.toHaveProperty('a');

    const second = await asleep();
    const { checkpointId } = await world.engine.get('org', second);
    await world.engine.kill(caller, second);
    expect(checkpointId !== null && world.runtime.warmth(second, checkpointId).warm).toBe(false);
  });
});
