import type { SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('retention on %s', (kind) => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld(kind);
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  const stored = async () => {
    const ids: string[] = [];
    for await (const { id } of world.store.list()) ids.push(id);
    return ids;
  };
  const cycle = async (id: SandboxId) => {
    const { checkpoint } = await engine.pause(caller, id);
    await engine.resume(caller, id);
    return checkpoint.id;
  };

  it('keeps the present checkpoint, the previous one and all named ones, and collects the rest', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const [oldest, old, previous] = [await cycle(id), await cycle(id), await cycle(id)];
    const named = (await engine.snapshot(caller, id, { name: 'keep me' })).checkpoint;
    const present = await cycle(id);
    await engine.reconcile();
    const kept = await stored();
    expect(kept).toEqual(expect.arrayContaining([named.id, present]));
    expect(kept).not.toContain(oldest);
    expect(kept).not.toContain(old);
    // The named checkpoint is the last before the present one, so no other is kept for the fallback `previous`.
    expect(kept).not.toContain(previous);
    expect(await engine.checkpoint('org', oldest)).toMatchObject({ state: 'deleted' });
  });

  it('keeps a checkpoint that a caller asked for, with or without a name, until it is deleted', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const asked = [
      (await engine.snapshot(caller, id)).checkpoint,
      (await engine.snapshot(caller, id)).checkpoint,
    ];
    await cycle(id);
    await cycle(id);
    await engine.kill(caller, id);
    await engine.reconcile();
    expect(await stored()).toEqual(expect.arrayContaining(asked.map((checkpoint) => checkpoint.id)));
    for (const checkpoint of asked) await engine.deleteCheckpoint('org', checkpoint.id);
    await engine.reconcile();
    expect(await stored()).toHaveLength(1);
  });

  it('collects all checkpoints of a killed sandbox in one round, also those that stand on each other', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const chain = [await cycle(id), await cycle(id), await cycle(id), await cycle(id)];
    for (const [at, below] of chain.slice(0, -1).entries()) {
      await world.db.transaction((tx) =>
        tx.query('INSERT INTO checkpoint_stands_on (checkpoint_id, other_id) VALUES ($1, $2)', [
          chain[at + 1] ?? '',
          below,
        ]),
      );
    }
    await engine.kill(caller, id);
    await engine.reconcile();
    // What is left is the template.
    expect(await stored()).toHaveLength(1);
  });

  it('never collects the base of a fork until the fork has a checkpoint of its own', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const { checkpoint } = await engine.pause(caller, id);
    const [fork] = (await engine.fork(caller, id)).forks;
    await engine.kill(caller, id);
    await engine.reconcile();
    expect(await stored()).toContain(checkpoint.id);
    if (fork === undefined || !('sandbox' in fork)) throw new Error('It failed.');
    await cycle(fork.sandbox.id);
    await engine.reconcile();
    expect(await stored()).not.toContain(checkpoint.id);
  });

  it('refuses to delete a checkpoint in use, and names its users', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const { checkpoint } = await engine.pause(caller, id);
    await expect(engine.deleteCheckpoint('org', checkpoint.id)).rejects.toMatchObject({ code: 'conflict' });
    await engine.resume(caller, id);
    const named = (await engine.snapshot(caller, id, { name: 'a' })).checkpoint;
    await cycle(id);
    await engine.deleteCheckpoint('org', named.id);
    expect(await engine.checkpoint('org', named.id)).toMatchObject({ state: 'deleted', names: [] });
  });

  it('announces an expiry in advance, and does not expire a checkpoint in use', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const day = 24 * 3_600;
    const kept = (await engine.snapshot(caller, id, { name: 'a week', expiresInSeconds: 7 * day }))
      .checkpoint;
    await cycle(id);
    await engine.reconcile();
    const types = async () =>
      (await engine.events({ sandboxId: id, afterSeq: 0 }, 200))
        .filter((event) => event.data['checkpointId'] === kept.id)
        .map((event) => event.type);
    expect(await types()).not.toContain('checkpoint.expiring');
    world.clock.advance((6 * day + 1) * 1_000);
    await engine.reconcile();
    expect(await types()).toContain('checkpoint.expiring');
    expect(await types()).not.toContain('checkpoint.deleted');
    world.clock.advance(day * 1_000);
    await engine.reconcile();
    expect((await types()).slice(-2)).toEqual(['checkpoint.expiring', 'checkpoint.deleted']);
    expect(await engine.checkpoint('org', kept.id)).toMatchObject({ state: 'deleted' });
  });

  it('reports the bytes of a sandbox and of each checkpoint', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    await cycle(id);
    await cycle(id);
    const { items, bytes } = await engine.checkpoints('org', id, 10);
    expect(items.every((checkpoint) => (checkpoint.bytes ?? 0) > 0)).toBe(true);
    expect(bytes).toBe(items.reduce((sum, checkpoint) => sum + (checkpoint.bytes ?? 0), 0));
  });

  it('records the result of a verification, with an event only when the health changes', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const { checkpoint } = await engine.pause(caller, id);
    expect(await engine.verify('org', checkpoint.id)).toMatchObject({
      health: 'ok',
      verifiedAt: world.clock.now(),
    });
    world.store.damage(checkpoint.id, 'corrupt');
    expect(await engine.verify('org', checkpoint.id)).toMatchObject({ health: 'damaged', state: 'sealed' });
    await engine.verify('org', checkpoint.id);
    const { id: other } = (await engine.create(caller, {})).sandbox;
    const gone = (await engine.snapshot(caller, other)).checkpoint;
    await cycle(other);
    await engine.deleteCheckpoint('org', gone.id);
    // A deleted checkpoint has no health any more.
    await engine.verify('org', gone.id);
    const said = await engine.events({ sandboxId: other, afterSeq: 0 }, 100);
    expect(said.map((event) => event.type)).not.toContain('checkpoint.health');
    const news = (await engine.events({ sandboxId: id, afterSeq: 0 }, 100)).filter(
      (event) => event.type === 'checkpoint.health',
    );
    expect(news).toMatchObject([
      { data: { health: 'damaged', code: 'checkpoint_corrupt' }, state: 'paused' },
    ]);
  });
});
