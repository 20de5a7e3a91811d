import { type CheckpointId, defaultsOf, type SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { MemoryReplicas } from '../../testing/memory-replicas.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';
import { STORE_SETTINGS } from './settings.ts';

const caller = { org: 'org' };
/** No room for anything. */
const FULL = { ...defaultsOf(STORE_SETTINGS), cacheBytes: 1, cachePercent: 0 };

describe.each(databaseKinds)('the local disk as a cache of the store, on %s', (kind) => {
  let world: World;
  let engine: Engine;
  let replicas: MemoryReplicas;
  beforeEach(async () => {
    world = await makeWorld(kind, {
      parts: ({ store }) => {
        replicas ??= new MemoryReplicas(store as World['store']);
        return { replicas, storeSettings: FULL };
      },
    });
    engine = world.engine;
    world.runtime.keepsInstances = false;
    await until(async () => (await engine.replication())?.waiting === 0);
  });
  afterEach(async () => {
    await world.dispose();
    replicas = undefined as unknown as MemoryReplicas;
  });

  async function until(isTrue: () => Promise<boolean>): Promise<void> {
    for (let tries = 0; !(await isTrue()); tries++) {
      if (tries > 2_000) throw new Error('It never came true.');
      await engine.replicate();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async function paused(durability: 'sealed' | 'replicated' = 'replicated') {
    const { id } = (await engine.create(caller, {})).sandbox;
    world.runtime.work(id, '/note', 'kept');
    const { checkpoint } = await engine.pause(caller, id, { durability });
    world.clock.advance(1_000);
    return { id, checkpoint: checkpoint.id };
  }

  const isHere = (id: CheckpointId) => world.store.has(id);
  const evictions = async (id: SandboxId) =>
    (await engine.events({ sandboxId: id, afterSeq: 0 }, 1_000)).filter(
      ({ type }) => type === 'checkpoint.evicted',
    );

  it('evicts what is replicated and asleep, says so in an event, and fetches it for the next wake', async () => {
    const { id, checkpoint } = await paused();
    await engine.keepCacheBound();
    expect(await isHere(checkpoint)).toBe(false);
    expect(await evictions(id)).toMatchObject([
      { data: { checkpointId: checkpoint, node: 'local', freedBytes: expect.any(Number) } },
    ]);
    expect(engine.cache()).toMatchObject({ bytes: expect.any(Number), limitBytes: 1 });
    await engine.resume(caller, id);
    expect(world.runtime.look(id)?.files['/note']).toBe('kept');
    expect(await isHere(checkpoint)).toBe(true);
  });

  it('has the runtime give up what it made in advance for the checkpoint, before the bytes are removed', async () => {
    const { checkpoint } = await paused();
    const given: unknown[] = [];
    Object.assign(world.runtime, {
      releasePrepared: async (id: CheckpointId) => given.push(id, await isHere(id)),
    });
    await engine.keepCacheBound();
    expect(given).toEqual([checkpoint, true]);
    expect(await isHere(checkpoint)).toBe(false);
  });

  it('never evicts what is not replicated', async () => {
    replicas.failure = new TorporError('unreachable', 'The store is away.');
    const { id, checkpoint } = await paused('sealed');
    await engine.keepCacheBound();
    replicas.failure = undefined;
    await engine.keepCacheBound();
    expect(await isHere(checkpoint)).toBe(true);
    expect(await evictions(id)).toEqual([]);
  });

  it('evicts nothing while the store cannot show that it has the checkpoint', async () => {
    const { checkpoint } = await paused();
    replicas.failure = new TorporError('unreachable', 'The store is away.');
    await expect(engine.keepCacheBound()).rejects.toMatchObject({ code: 'checkpoint_unreadable' });
    expect(await isHere(checkpoint)).toBe(true);
    replicas.failure = undefined;
    for (const key of [...replicas.objects]) if (key.includes(checkpoint)) replicas.objects.delete(key);
    await engine.keepCacheBound();
    expect(await isHere(checkpoint)).toBe(true);
  });

  it('keeps the checkpoints of templates, and those from which sandboxes run', async () => {
    const { id, checkpoint } = await paused();
    await engine.resume(caller, id);
    await engine.keepCacheBound();
    expect(await isHere(checkpoint)).toBe(true);
    const templates = await world.db.query<{ checkpoint_id: CheckpointId }>(
      'SELECT checkpoint_id FROM templates WHERE checkpoint_id IS NOT NULL',
    );
    expect(templates).not.toEqual([]);
    for (const { checkpoint_id } of templates) expect(await isHere(checkpoint_id)).toBe(true);
  });

  it('keeps the checkpoint of a warm sandbox', async () => {
    world.runtime.keepsInstances = true;
    const { checkpoint } = await paused();
    await engine.keepCacheBound();
    expect(await isHere(checkpoint)).toBe(true);
  });

  it('evicts the least recently used first, and only until the bound is kept', async () => {
    const [first, second, third] = [await paused(), await paused(), await paused()];
    for (const [usedAt, { checkpoint }] of [second, first, third].entries()) {
      await world.store.recordUse(checkpoint, usedAt + 1);
    }
    const { bytes } = await world.store.copies();
    const next = await world.another({ replicas, storeSettings: { ...FULL, cacheBytes: bytes - 1 } });
    await next.keepCacheBound();
    const here = await Promise.all([first, second, third].map(({ checkpoint }) => isHere(checkpoint)));
    expect(here).toEqual([true, false, true]);
  });

  it('counts a start as a use', async () => {
    const { id, checkpoint } = await paused();
    expect(await world.store.lastUse(checkpoint)).toBe(0);
    await engine.resume(caller, id);
    expect(await world.store.lastUse(checkpoint)).toBe(world.clock.now());
  });

  it('lets a wake wait for an eviction that is under way, and then fetches', async () => {
    const { id, checkpoint } = await paused();
    const evicting = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const evict = replicas.evict.bind(replicas);
    replicas.evict = async (one) => {
      begun.resolve();
      await evicting.promise;
      return evict(one);
    };
    const round = engine.keepCacheBound();
    await begun.promise;
    const waking = engine.resume(caller, id);
    evicting.resolve();
    await round;
    await waking;
    expect(world.runtime.look(id)?.files['/note']).toBe('kept');
    expect(await isHere(checkpoint)).toBe(true);
  });

  it('does not evict a checkpoint from which a sandbox is being started', async () => {
    const { id, checkpoint } = await paused();
    // The database says that it sleeps, because the answer is older than the start.
    const start = world.runtime.start.bind(world.runtime);
    let wasHere: boolean | undefined;
    world.runtime.start = async (...args: Parameters<typeof start>) => {
      await engine.keepCacheBound();
      wasHere = await isHere(checkpoint);
      return start(...args);
    };
    await engine.resume(caller, id);
    expect(wasHere).toBe(true);
  });

  it('asks the store about evicted checkpoints when it inspects them, and fetches nothing', async () => {
    const { id, checkpoint } = await paused();
    await engine.keepCacheBound();
    expect(await engine.inspectCheckpoints()).toMatchObject({ damaged: 0, unknown: 0 });
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'ok' } });
    expect(await isHere(checkpoint)).toBe(false);
  });
});
