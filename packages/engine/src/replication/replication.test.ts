import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { MemoryBucket, MemoryReplicas } from '../../testing/memory-replicas.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };
const LAYER = { kind: 'layer', subject: 'lay_shared' } as const;

const refused = () =>
  new TorporError('forbidden', 'The store refuses.', {
    details: { fault: 'refusing', bucket: 'b', key: 'k' },
  });
const away = () =>
  new TorporError('unreachable', 'The store is away.', { details: { fault: 'unreachable' } });

describe.each(databaseKinds)('the replication of checkpoints, on %s', (kind) => {
  let world: World;
  let engine: Engine;
  let replicas: MemoryReplicas;
  let bucket: MemoryBucket;
  beforeEach(async () => {
    bucket = new MemoryBucket();
    world = await makeWorld(kind, {
      parts: ({ store }) => {
        replicas ??= new MemoryReplicas(store as World['store'], undefined, bucket);
        return { replicas };
      },
    });
    engine = world.engine;
    world.runtime.keepsInstances = false;
    // Removes what the templates have left, so that each test sees only its own checkpoints.
    await settled();
  });
  afterEach(async () => {
    await world.dispose();
    replicas = undefined as unknown as MemoryReplicas;
  });

  /** Lets the worker read the queue until nothing changes. */
  async function settled(): Promise<void> {
    for (let i = 0; i < 20; i++) {
      await engine.replicate();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Lets the worker read the queue until the condition holds. */
  async function until(isTrue: () => Promise<boolean> | boolean, on = engine): Promise<void> {
    for (let tries = 0; !(await isTrue()); tries++) {
      if (tries > 2_000) throw new Error('It never came true.');
      await on.replicate();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  const isReplicated = async (id: CheckpointId) => (await engine.checkpoint('org', id)).replicated === true;

  async function paused(request: Parameters<Engine['pause']>[2] = {}) {
    const { id } = (await engine.create(caller, {})).sandbox;
    const reply = await engine.pause(caller, id, request);
    return { id, reply, checkpoint: reply.checkpoint.id };
  }

  const dataOf = async (id: SandboxId, wanted: string) =>
    (await engine.events({ sandboxId: id, afterSeq: 0 }, 1_000))
      .filter(({ type }) => type === wanted)
      .map(({ data }) => data);

  /** As on a server that has never used a store. */
  async function forgetObjects(): Promise<void> {
    await until(async () => (await engine.replication())?.waiting === 0);
    await world.db.transaction(async (tx) => {
      await tx.query('DELETE FROM checkpoint_objects');
      await tx.query('DELETE FROM stored_objects');
    });
  }

  const objectsOf = (id: CheckpointId) => [...replicas.objects].filter((key) => key.includes(id));

  it('stores every part and then a marker, and shows it in the view and in an event', async () => {
    const { id, reply, checkpoint } = await paused({ durability: 'replicated' });
    expect(reply).toMatchObject({ replicated: true, replicatedReason: null });
    expect(await engine.checkpoint('org', checkpoint)).toMatchObject({
      replicated: true,
      replicatedAt: expect.any(Number),
    });
    expect(objectsOf(checkpoint).map((key) => key.split('/')[0])).toEqual(['record', 'marker']);
    expect(await dataOf(id, 'checkpoint.replicated')).toMatchObject([
      { checkpointId: checkpoint, location: expect.stringContaining(`marker/${checkpoint}`), bytes: 1 },
    ]);
  });

  it('answers a pause without waiting unless the caller or the policy asks for it', async () => {
    const upload = Promise.withResolvers<void>();
    replicas.gate = upload.promise;
    const { reply, checkpoint } = await paused();
    expect(reply).toMatchObject({ replicated: false, replicatedReason: null });
    upload.resolve();
    await until(() => isReplicated(checkpoint));
  });

  /** A resume that is under way until the returned function is called. */
  async function resumeUntil(id: SandboxId): Promise<() => Promise<void>> {
    const [begun, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { start } = world.runtime;
    world.runtime.start = async (...args) => {
      begun.resolve();
      await ended.promise;
      return start.apply(world.runtime, args);
    };
    const resuming = engine.resume(caller, id);
    await begun.promise;
    world.runtime.start = start;
    return async () => {
      ended.resolve();
      await resuming;
    };
  }

  it('gives way to a start that is under way, and goes on when the start has ended', async () => {
    const other = await paused({ durability: 'replicated' });
    const end = await resumeUntil(other.id);
    const { checkpoint } = await paused();
    await settled();
    expect(await isReplicated(checkpoint)).toBe(false);
    await end();
    await until(() => isReplicated(checkpoint));
  });

  it('gives way to a resume from its first query on', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const [asked, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { observe } = world.runtime;
    world.runtime.observe = async (...args) => {
      asked.resolve();
      await answered.promise;
      return observe.apply(world.runtime, args);
    };
    const resuming = engine.resume(caller, id);
    await asked.promise;
    world.runtime.observe = observe;
    const { checkpoint } = await paused();
    await settled();
    const before = await isReplicated(checkpoint);
    answered.resolve();
    await resuming;
    await until(() => isReplicated(checkpoint));
    expect(before).toBe(false);
  });

  it('does not give way when a caller waits for the upload', async () => {
    const other = await paused({ durability: 'replicated' });
    const end = await resumeUntil(other.id);
    const { reply } = await paused({ durability: 'replicated' });
    expect(reply).toMatchObject({ replicated: true });
    await end();
  });

  it('follows the durability setting of the server when the caller gives none', async () => {
    const strict = await world.another({ replicas, durability: 'replicated' });
    const { id } = (await strict.create(caller, {})).sandbox;
    expect(await strict.pause(caller, id)).toMatchObject({ replicated: true });
    await strict.resume(caller, id);
    expect(await strict.pause(caller, id, { durability: 'sealed' })).toMatchObject({
      replicatedReason: null,
    });
  });

  it('tells why the checkpoint is not replicated when the deadline of the caller comes first; the pause stays', async () => {
    const upload = Promise.withResolvers<void>();
    replicas.gate = upload.promise;
    const { id } = (await engine.create(caller, {})).sandbox;
    const deadline = new AbortController();
    const answer = engine.pause({ ...caller, signal: deadline.signal }, id, { durability: 'replicated' });
    while ((await engine.get('org', id)).state !== 'paused') await new Promise(setImmediate);
    deadline.abort(new Error('late'));
    expect(await answer).toMatchObject({
      replicated: false,
      replicatedReason: 'The upload is still under way.',
      sandbox: { state: 'paused' },
    });
    upload.resolve();
  });

  const triesOf = async (id: CheckpointId) =>
    (
      await world.db.query<{ replica_failures: number }>(
        'SELECT replica_failures FROM checkpoints WHERE id = $1',
        [id],
      )
    )[0]?.replica_failures;

  it('records a lasting failure once with its place, answers the caller, and tries again later', async () => {
    replicas.failure = refused();
    const { id, reply, checkpoint } = await paused({ durability: 'replicated' });
    expect(reply).toMatchObject({ replicated: false, replicatedReason: 'The store refuses.' });
    const failures = () => dataOf(id, 'checkpoint.replication_failed');
    await until(async () => (await failures()).length > 0);
    world.clock.advance(60_000);
    // The second try has ended too: it would succeed when the store is well.
    await until(async () => (await triesOf(checkpoint)) === 2);
    const failed = await failures();
    expect(failed).toMatchObject([
      { checkpointId: checkpoint, code: 'forbidden', fault: 'refusing', bucket: 'b', key: 'k' },
    ]);
    replicas.failure = undefined;
    await settled();
    expect(await engine.checkpoint('org', checkpoint)).toMatchObject({ replicated: false });
    world.clock.advance(300_000);
    await until(() => isReplicated(checkpoint));
    expect(objectsOf(checkpoint)).toHaveLength(2);
    const leftovers = () => world.db.query("SELECT key FROM stored_objects WHERE state <> 'stored'");
    await until(async () => (await leftovers()).length === 0);
  });

  it('does not try again at once what has failed and could not be recorded', async () => {
    let refusals = 0;
    let isRefusing = false;
    const { db } = world;
    const other = await world.another({
      replicas,
      db: {
        dialect: db.dialect,
        query: (sql, params) => db.query(sql, params),
        transaction: async (work) => {
          if (!isRefusing) return db.transaction(work);
          refusals++;
          throw new Error('The database writes nothing.');
        },
        listen: (channel, onNotice) => db.listen(channel, onNotice),
        close: async () => {},
      },
    });
    const upload = Promise.withResolvers<void>();
    replicas.gate = upload.promise;
    const { checkpoint } = await paused();
    isRefusing = true;
    upload.resolve();
    for (let turns = 0; turns < 200; turns++) {
      await other.replicate();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(refusals).toBeLessThan(5);
    isRefusing = false;
    world.clock.advance(60_000);
    await until(() => isReplicated(checkpoint), other);
  });

  it('refuses a pause that must be replicated on a server without a store, and changes nothing', async () => {
    const without = await world.another({ replicas: undefined });
    const { id } = (await without.create(caller, {})).sandbox;
    await expect(without.pause(caller, id, { durability: 'replicated' })).rejects.toMatchObject({
      code: 'capability_unsupported',
    });
    expect(await without.get('org', id)).toMatchObject({ state: 'running' });
  });

  it('stores a shared layer once, and deletes it with the last checkpoint that needs it', async () => {
    replicas.shared.push(LAYER);
    const [first, second] = [
      await paused({ durability: 'replicated' }),
      await paused({ durability: 'replicated' }),
    ];
    const layers = () => [...replicas.objects].filter((key) => key.startsWith('layer/'));
    expect(layers()).toHaveLength(1);
    for (const { id, checkpoint, left } of [
      { ...first, left: 1 },
      { ...second, left: 0 },
    ]) {
      await engine.kill(caller, id);
      await engine.deleteCheckpoint('org', checkpoint);
      await until(() => objectsOf(checkpoint).length === 0 && layers().length <= left);
      expect(layers()).toHaveLength(left);
    }
    expect(await world.db.query('SELECT key FROM checkpoint_objects WHERE key LIKE $1', ['layer/%'])).toEqual(
      [],
    );
  });

  it('deletes nothing from its rows while the store does not answer, and deletes it afterwards', async () => {
    const { id, checkpoint } = await paused({ durability: 'replicated' });
    replicas.failure = away();
    await engine.kill(caller, id);
    await engine.deleteCheckpoint('org', checkpoint);
    await settled();
    expect(objectsOf(checkpoint)).toHaveLength(2);
    replicas.failure = undefined;
    await until(() => objectsOf(checkpoint).length === 0);
    const rows = () => world.db.query("SELECT key FROM stored_objects WHERE state = 'deleting'");
    await until(async () => (await rows()).length === 0);
  });

  it('deletes the object of an upload that ends after its checkpoint was deleted', async () => {
    const upload = Promise.withResolvers<void>();
    replicas.gate = upload.promise;
    const { id, checkpoint } = await paused();
    const rows = () =>
      world.db.query<{ state: string }>('SELECT state FROM stored_objects WHERE subject = $1', [checkpoint]);
    await until(async () => (await rows()).length > 0);
    await engine.kill(caller, id);
    await engine.deleteCheckpoint('org', checkpoint);
    await settled();
    // The upload has not ended, so its object cannot be deleted yet.
    expect(await rows()).toEqual([{ state: 'deleting' }]);
    upload.resolve();
    await until(async () => (await rows()).length === 0);
    expect(objectsOf(checkpoint)).toEqual([]);
  });

  it('fetches a lost checkpoint before a start, and records no damage', async () => {
    const { id, checkpoint } = await paused({ durability: 'replicated' });
    world.store.takeAway(checkpoint);
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'ok' } });
    expect(await engine.resume(caller, id)).toMatchObject({ source: { checkpointId: checkpoint } });
    expect(await dataOf(id, 'checkpoint.fetched')).toMatchObject([
      { checkpointId: checkpoint, parts: ['record'] },
    ]);
    expect(await dataOf(id, 'checkpoint.health')).toEqual([]);
  });

  it('leaves a sandbox paused when its checkpoint is lost here and the store is away', async () => {
    const { id, checkpoint } = await paused({ durability: 'replicated' });
    world.store.takeAway(checkpoint);
    replicas.failure = away();
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'unknown' } });
    const all = ['files', 'previous', 'template'] as const;
    await expect(engine.resume(caller, id, { fallback: [...all] })).rejects.toMatchObject({
      code: 'checkpoint_unreadable',
    });
    expect(await engine.get('org', id)).toMatchObject({ state: 'paused' });
    replicas.failure = undefined;
    await engine.resume(caller, id);
  });

  it('calls a checkpoint missing and its sandbox lost only when the store has lost it too', async () => {
    const { id, checkpoint } = await paused({ durability: 'replicated' });
    world.store.takeAway(checkpoint);
    replicas.objects.clear();
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'missing' } });
    await expect(engine.resume(caller, id, { fallback: [] })).rejects.toMatchObject({ code: 'lost' });
  });

  it('refuses to start with another store or without a data key, and changes nothing', async () => {
    await paused({ durability: 'replicated' });
    const rows = () => world.db.query('SELECT key, state FROM stored_objects ORDER BY key');
    const before = await rows();
    const other = new MemoryReplicas(world.store, 'memory://other');
    await expect(world.another({ replicas: other })).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('memory://replicas'),
    });
    const withoutKey = Object.assign(new MemoryReplicas(world.store), { hasKey: () => false });
    await expect(world.another({ replicas: withoutKey })).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('data key'),
    });
    expect(await rows()).toEqual(before);
  });

  describe('the identity of the store', () => {
    const identities = () =>
      world.db.query<{ key: string; state: string }>(
        "SELECT key, state FROM stored_objects WHERE kind = 'identity'",
      );
    /** What answers at the same address, and has none of the objects. */
    const another = () => new MemoryReplicas(world.store);

    it('is stored and recorded once, at the first use', async () => {
      const [first] = await identities();
      expect(first).toMatchObject({ state: 'stored' });
      expect(replicas.objects).toContain(first?.key);
      await world.another({ replicas });
      expect(await identities()).toEqual([first]);
    });

    it('shows that another store answers at the address: the server is refused, and nothing is changed', async () => {
      await paused({ durability: 'replicated' });
      const rows = () => world.db.query('SELECT key, state FROM stored_objects ORDER BY key');
      const before = await rows();
      const other = another();
      await expect(world.another({ replicas: other })).rejects.toMatchObject({
        code: 'conflict',
        message: expect.stringContaining('is not the one that has the checkpoints'),
      });
      expect(await rows()).toEqual(before);
      expect([...other.objects]).toEqual([]);
    });

    it('keeps a server that could not ask at its start from taking checkpoints for lost, and from storing any', async () => {
      const { id, checkpoint } = await paused({ durability: 'replicated' });
      const other = another();
      other.failure = away();
      const later = await world.another({ replicas: other });
      other.failure = undefined;
      world.store.takeAway(checkpoint);
      await later.inspectCheckpoints();
      expect(await later.get('org', id)).toMatchObject({ checkpointHealth: { health: 'unknown' } });
      await expect(later.resume(caller, id)).rejects.toMatchObject({
        code: 'checkpoint_unreadable',
        message: expect.stringContaining('is not the one that has the checkpoints'),
      });
      const fresh = (await later.create(caller, {})).sandbox;
      expect(await later.pause(caller, fresh.id, { durability: 'replicated' })).toMatchObject({
        replicated: false,
        replicatedReason: expect.stringContaining('is not the one that has the checkpoints'),
      });
      expect([...other.objects]).toEqual([]);
    });

    it('is stored again under another key after a crash before it was recorded', async () => {
      const empty = new MemoryReplicas(world.store, 'memory://second');
      await forgetObjects();
      const crash = { pass: (point: string) => Promise.reject(new Error(`crash at ${point}`)) };
      await world.another({ replicas: empty, faults: crash });
      expect(await identities()).toMatchObject([{ state: 'writing' }]);
      const [left] = [...empty.objects];
      const next = await world.another({ replicas: empty });
      await until(async () => (await identities()).length === 1, next);
      const [recorded] = await identities();
      expect(recorded).toMatchObject({ state: 'stored' });
      expect(recorded?.key).not.toBe(left);
      expect(empty.objects).toContain(recorded?.key);
      expect(empty.objects).not.toContain(left);
    });
  });

  it('refuses a first start with a store that lacks rights or does not exist, and starts when a known one does', async () => {
    const forbidding = new MemoryReplicas(world.store, undefined, bucket);
    forbidding.failure = refused();
    // This server has stored something there before.
    await world.another({ replicas: forbidding });
    await forgetObjects();
    await expect(world.another({ replicas: forbidding })).rejects.toMatchObject({
      code: 'forbidden',
    });
    expect(await world.db.query('SELECT key FROM stored_objects')).toEqual([]);
  });

  it('gives up what a killed server was writing, and stores it again under another key', async () => {
    replicas.gate = new Promise(() => {});
    const { checkpoint } = await paused();
    const writing = () => world.db.query('SELECT key FROM stored_objects WHERE subject = $1', [checkpoint]);
    await until(async () => (await writing()).length > 0);
    const restarted = Object.assign(new MemoryReplicas(world.store, undefined, bucket), {
      newKey: (of: { kind: string; subject: string }) => `${of.kind}/${of.subject}-again`,
    });
    const next = await world.another({ replicas: restarted });
    await until(async () => (await next.checkpoint('org', checkpoint)).replicated === true, next);
    await until(async () => (await writing()).length === 2, next);
    const rows = await world.db.query<{ key: string; state: string }>(
      'SELECT key, state FROM stored_objects WHERE subject = $1 ORDER BY key',
      [checkpoint],
    );
    expect(rows.map(({ key, state }) => [key.split('-').at(-1), state])).toEqual([
      ['again', 'stored'],
      ['again', 'stored'],
    ]);
    // The first engine would wait for its upload for ever.
    replicas.gate = Promise.resolve();
  });
});
