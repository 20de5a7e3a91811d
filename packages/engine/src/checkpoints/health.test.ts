import { type CheckpointId, type SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ProviderRuntime } from '../../testing/provider-runtime.ts';
import { settle } from '../../testing/settle.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };
const FILES = 'image.json';
const MEMORY = 'memory.json';

let world: World;
let engine: Engine;
let provider: ProviderRuntime;
beforeEach(async () => {
  provider = new ProviderRuntime();
  world = await makeWorld('sqlite', { runtimes: () => [provider] });
  engine = world.engine;
  world.runtime.keepsInstances = false;
});
afterEach(() => world.dispose());

async function paused(request = {}): Promise<{ id: SandboxId; checkpointId: CheckpointId }> {
  const { id } = (await engine.create(caller, request)).sandbox;
  world.runtime.work(id, '/one', 'first');
  const { checkpoint } = await engine.pause(caller, id);
  return { id, checkpointId: checkpoint.id };
}

async function healthEvents(id: SandboxId) {
  const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 1_000);
  return events.filter(({ type }) => type === 'checkpoint.health').map(({ data }) => data);
}

describe('a verification', () => {
  it('gives way to a start that is under way', async () => {
    const { checkpointId } = await paused();
    const { id } = await paused();
    const [begun, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { start } = world.runtime;
    world.runtime.start = async (...args) => {
      begun.resolve();
      await ended.promise;
      return start.apply(world.runtime, args);
    };
    const resuming = engine.resume(caller, id);
    await begun.promise;
    let isVerified = false;
    const verifying = engine.verify('org', checkpointId).then(() => {
      isVerified = true;
    });
    for (let turns = 0; turns < 100; turns++) await new Promise(setImmediate);
    expect(isVerified).toBe(false);
    ended.resolve();
    await Promise.all([resuming, verifying]);
  });
});

describe('an inspection of the checkpoints', () => {
  it('finds that the checkpoint of a paused sandbox was moved away, and that it was moved back (R85, R108)', async () => {
    const { id, checkpointId } = await paused();
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'ok', reason: null } });

    world.store.takeAway(checkpointId);
    await engine.inspectCheckpoints();
    const away = await engine.get('org', id);
    expect(away).toMatchObject({ state: 'paused', checkpointHealth: { health: 'missing' } });
    expect(away.checkpointHealth?.reason).toContain(checkpointId);
    expect((await engine.list({ org: 'org' }, '', 10)).items[0]).toEqual(away);
    expect(await engine.checkpoint('org', checkpointId)).toMatchObject({
      health: 'damaged',
      healthCode: 'checkpoint_missing',
    });

    await engine.inspectCheckpoints();
    world.store.bringBack(checkpointId);
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'ok', reason: null } });
    expect(await healthEvents(id)).toMatchObject([
      { checkpointId, health: 'damaged', code: 'checkpoint_missing', location: expect.any(String) },
      { checkpointId, health: 'ok', code: null },
    ]);
  });

  it('reports an unreadable checkpoint as unknown, never as damaged (R91, R92)', async () => {
    const { id, checkpointId } = await paused();
    const { inspect } = world.store;
    world.store.inspect = async () => {
      throw new TorporError('checkpoint_unreadable', 'The store does not answer.', { checkpointId });
    };
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      checkpointHealth: { health: 'unknown', reason: 'The store does not answer.' },
    });
    world.store.inspect = inspect;
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'ok' } });
  });

  it('reports unknown when the store does not answer in time, and continues with the next (R91)', async () => {
    const { id } = await paused();
    world.store.inspect = () => new Promise(() => {});
    const look = engine.inspectCheckpoints();
    await settle(world.clock, look);
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'unknown' } });
  });

  it('reports the damaged part, and keeps the faults that a verification has found (R91, R108)', async () => {
    const { id, checkpointId } = await paused();
    world.store.damage(checkpointId, 'altered', MEMORY);
    expect(await engine.verify('org', checkpointId)).toMatchObject({
      health: 'damaged',
      faults: [{ part: 'memory', code: 'checkpoint_corrupt' }],
    });
    // The sizes are right, so an inspection neither finds nor clears faults of the contents.
    await engine.inspectCheckpoints();
    world.store.takeAway(checkpointId);
    await engine.inspectCheckpoints();
    world.store.bringBack(checkpointId);
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({
      checkpointHealth: { health: 'damaged', parts: ['memory'] },
    });
    world.store.mend(checkpointId);
    expect(await engine.verify('org', checkpointId)).toMatchObject({ health: 'ok', faults: [] });
  });

  it('rests nine times as long as it works when it runs in the background', async () => {
    await paused();
    const { inspect } = world.store;
    let looks = 0;
    world.store.inspect = async (...args) => {
      looks++;
      await world.clock.sleep(100);
      return inspect.apply(world.store, args);
    };
    const began = world.clock.monotonic();
    await settle(world.clock, engine.inspectCheckpoints({ external: true }));
    const inFront = world.clock.monotonic() - began;
    await settle(world.clock, engine.inspectCheckpoints({ external: true, background: true }));
    const behind = world.clock.monotonic() - began - inFront;
    expect(looks).toBeGreaterThan(0);
    expect(behind).toBeGreaterThanOrEqual(10 * inFront);
  });

  it('writes nothing about healthy checkpoints', async () => {
    await paused();
    const before = await engine.newest({ org: 'org', afterPosition: 0 });
    const writes: string[] = [];
    const { transaction } = world.db;
    world.db.transaction = (work) => {
      writes.push('transaction');
      return transaction.call(world.db, work) as never;
    };
    const round = await engine.inspectCheckpoints();
    world.db.transaction = transaction;
    expect(round).toMatchObject({ damaged: 0, unknown: 0 });
    expect(round.inspected).toBeGreaterThan(0);
    expect(writes).toEqual([]);
    expect(await engine.newest({ org: 'org', afterPosition: 0 })).toBe(before);
  });

  it('counts unhealthy checkpoints for the metrics (R108)', async () => {
    const { checkpointId } = await paused();
    const other = await paused();
    await paused();
    world.store.takeAway(checkpointId);
    world.store.damage(other.checkpointId, 'corrupt', MEMORY);
    await engine.inspectCheckpoints();
    expect(await engine.checkpointHealthCounts()).toEqual({ damaged: 1, missing: 1, unknown: 0 });
  });
});

describe('a start from a checkpoint of which one part is at fault', () => {
  for (const how of ['missing', 'corrupt'] as const) {
    it(`uses the files when the memory is ${how}, and reports the loss (R91, R93)`, async () => {
      const { id, checkpointId } = await paused();
      world.store.damage(checkpointId, how, MEMORY);
      expect(await engine.resume(caller, id)).toMatchObject({
        source: { checkpointId, kind: 'files' },
        lost: ['processes'],
        sandbox: { state: 'running' },
      });
      expect(world.runtime.look(id)?.files).toMatchObject({ '/one': 'first' });
    });

    it(`refuses when the memory is ${how} and the policy allows nothing else; the sandbox stays paused (R92)`, async () => {
      const { id, checkpointId } = await paused({ fallback: [] });
      world.store.damage(checkpointId, how, MEMORY);
      const code = how === 'missing' ? 'checkpoint_missing' : 'checkpoint_corrupt';
      const refused = await engine.resume(caller, id).catch((error) => error.toBody());
      expect(refused).toMatchObject({ code, checkpointId, details: { part: 'memory' } });
      expect(refused.details.location).toContain(checkpointId);
      expect(await engine.get('org', id)).toMatchObject({ state: 'paused', checkpointId });
      const failed = (await engine.events({ sandboxId: id, afterSeq: 0 }, 100)).at(-1);
      const { location } = refused.details;
      expect(failed).toMatchObject({
        type: 'sandbox.resume_failed',
        data: { error: { code, checkpointId, location } },
      });
      expect(await engine.resume(caller, id, { fallback: ['files'] })).toMatchObject({ lost: ['processes'] });
    });
  }

  it('does not use memory that a verification found damaged, and reports it (R91, R93)', async () => {
    const { id, checkpointId } = await paused();
    await engine.verify('org', checkpointId);
    world.store.damage(checkpointId, 'altered', MEMORY);
    expect(await engine.verify('org', checkpointId)).toMatchObject({ health: 'damaged' });
    expect(await engine.resume(caller, id)).toMatchObject({
      source: { checkpointId, kind: 'files' },
      lost: ['processes'],
    });
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.some((event) => event.data['phase'] === 'falling back')).toBe(true);
  });

  it('refuses files that a verification found damaged, and the sandbox is not lost (R91, R99)', async () => {
    const { id, checkpointId } = await paused();
    world.store.damage(checkpointId, 'altered', FILES);
    await engine.verify('org', checkpointId);
    const refused = await engine.resume(caller, id).catch((error) => error.toBody());
    expect(refused).toMatchObject({ code: 'checkpoint_corrupt', checkpointId, details: { part: 'files' } });
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      checkpointHealth: { health: 'damaged', parts: ['files'] },
    });
    const anew = await engine.resume(caller, id, { fallback: ['template'] });
    expect(anew).toMatchObject({ source: { kind: 'template' } });
  });

  it('uses the previous checkpoint when the files are known to be damaged and the policy allows it (R93)', async () => {
    const { id, checkpointId: first } = await paused();
    await engine.resume(caller, id);
    world.runtime.work(id, '/two', 'second');
    const { checkpoint } = await engine.pause(caller, id);
    world.store.damage(checkpoint.id, 'altered', FILES);
    await engine.verify('org', checkpoint.id);
    expect(await engine.resume(caller, id, { fallback: ['files', 'previous'] })).toMatchObject({
      source: { checkpointId: first },
      lost: ['files'],
    });
  });

  it('reads damaged contents again without giving way to itself', async () => {
    const { id, checkpointId } = await paused();
    world.store.damage(checkpointId, 'altered', MEMORY);
    await engine.verify('org', checkpointId);
    world.store.mend(checkpointId);
    const began = world.clock.monotonic();
    await engine.resume(caller, id);
    expect(world.clock.monotonic()).toBe(began);
  });

  it('uses memory again once it is intact again, and the record says so (R91)', async () => {
    const { id, checkpointId } = await paused();
    world.store.damage(checkpointId, 'altered', MEMORY);
    await engine.verify('org', checkpointId);
    world.store.mend(checkpointId);
    expect(await engine.resume(caller, id)).toMatchObject({ source: { kind: 'memory' }, lost: [] });
    expect(await engine.checkpoint('org', checkpointId)).toMatchObject({ health: 'ok', faults: [] });
  });

  it('creates from files when the memory of a checkpoint is missing (R93)', async () => {
    const { checkpointId } = await paused();
    world.store.damage(checkpointId, 'missing', MEMORY);
    const fork = (await engine.create(caller, { from: checkpointId })).sandbox;
    expect(world.runtime.look(fork.id)?.files).toMatchObject({ '/one': 'first' });
  });
});

describe('a sandbox whose only checkpoint is missing', () => {
  it('is lost, and every later answer names the checkpoint, its location and the code (R91, R92)', async () => {
    const { id, checkpointId } = await paused();
    const { location } = await engine.checkpoint('org', checkpointId);
    world.store.takeAway(checkpointId);
    const about = { code: 'lost', checkpointId, details: { location, code: 'checkpoint_missing' } };
    const told = async (work: Promise<unknown>) => work.catch((error) => error.toBody());
    expect(await told(engine.resume(caller, id))).toMatchObject({ ...about, sandboxId: id });
    expect(await told(engine.resume(caller, id))).toMatchObject({ ...about, sandboxId: id });
    expect(await told(engine.agent('org', id))).toMatchObject({ ...about, sandboxId: id });
    expect(await told(engine.setEnd('org', id, 5, 'exactly'))).toMatchObject({ ...about, sandboxId: id });

    const sandbox = await engine.get('org', id);
    expect(sandbox).toMatchObject({
      state: 'lost',
      checkpointHealth: { health: 'missing' },
      lostCheckpoint: { checkpointId, location, code: 'checkpoint_missing' },
    });
    for (const fact of [checkpointId, location ?? '', 'checkpoint_missing']) {
      expect(sandbox.reason).toContain(fact);
    }
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.at(-1)).toMatchObject({
      type: 'sandbox.lost',
      data: { checkpointId, location, code: 'checkpoint_missing' },
    });
    const { items } = await engine.checkpoints('org', id, 10);
    expect(items[0]).toMatchObject({ id: checkpointId, health: 'damaged', healthCode: 'checkpoint_missing' });
  });
});

describe('a checkpoint that a provider keeps', () => {
  it('is missing when the provider has lost it, and is inspected only when providers are asked (R108)', async () => {
    const { id } = (await engine.create(caller, { runtime: 'provider' })).sandbox;
    const { checkpoint } = await engine.pause(caller, id);
    await provider.lose(checkpoint.id);
    await engine.inspectCheckpoints({ external: false });
    expect(await engine.get('org', id)).toMatchObject({ checkpointHealth: { health: 'ok' } });
    await engine.inspectCheckpoints();
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      checkpointHealth: { health: 'missing' },
    });
  });

  it('is not reported missing while a start uses it up', async () => {
    const { id } = (await engine.create(caller, { runtime: 'provider' })).sandbox;
    await engine.pause(caller, id);
    const slow = await world.another({
      faults: {
        pass: async (point) => {
          if (point === 'resume.start-started') await engine.inspectCheckpoints();
        },
      },
    });
    await slow.resume(caller, id);
    expect(await healthEvents(id)).toEqual([]);
  });
});
