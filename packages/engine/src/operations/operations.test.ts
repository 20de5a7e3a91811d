import { TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { withFaults } from '../../testing/faulty-runtime.ts';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

/** A runtime whose `start` and `freeze` wait until the test lets them go. */
function gatedWorld(kind: (typeof databaseKinds)[number]) {
  const gate = { start: Promise.resolve(), freeze: Promise.resolve() };
  let frozen = () => {};
  const reached = new Promise<void>((resolve) => {
    frozen = resolve;
  });
  const made = makeWorld(kind, {
    parts: ({ runtimes, clock }) => {
      const memory = runtimes.get('memory');
      if (memory === undefined) throw new Error('There is no runtime.');
      const slow = new Proxy(
        withFaults(memory, clock, () => undefined),
        {
          get(target, name) {
            const value: unknown = Reflect.get(target, name);
            if (typeof value !== 'function' || (name !== 'start' && name !== 'freeze')) return value;
            return async (...args: unknown[]) => {
              if (name === 'freeze') frozen();
              await gate[name];
              return value(...args);
            };
          },
        },
      );
      return { runtimes: new Map([['memory', slow]]) };
    },
  });
  return { gate, reached, made };
}

describe.each(databaseKinds)('operations on %s', (kind) => {
  let world: World;
  let engine: Engine;
  let letGo: () => void;
  let reached: Promise<void>;
  let gate: ReturnType<typeof gatedWorld>['gate'];

  beforeEach(async () => {
    const gated = gatedWorld(kind);
    ({ gate, reached } = gated);
    world = await gated.made;
    engine = world.engine;
  });
  afterEach(async () => {
    letGo?.();
    await world.dispose();
  });

  const hold = (call: 'start' | 'freeze') => {
    gate[call] = new Promise((resolve) => {
      letGo = resolve;
    });
  };

  it('join an identical request that is under way (R112)', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    hold('freeze');
    const first = engine.pause(caller, id);
    await reached;
    const second = engine.pause(caller, id);
    letGo();
    const [a, b] = await Promise.all([first, second]);
    expect(a.checkpoint.id).toBe(b.checkpoint.id);
    expect(a.operation?.id).toBe(b.operation?.id);
  });

  it('refuse an incompatible request with the open operation, and change nothing', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    hold('freeze');
    const pausing = engine.pause(caller, id);
    await reached;
    const refused = await engine.snapshot(caller, id).catch(TorporError.from);
    expect(refused).toMatchObject({ code: 'transitioning', retryable: true });
    letGo();
    const { operation } = await pausing;
    expect((refused as TorporError).toBody()).toMatchObject({
      operationId: operation?.id,
      details: { kind: 'pause' },
    });
  });

  it('let a kill supersede the open operation', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    hold('freeze');
    const pausing = engine.pause(caller, id).catch(TorporError.from);
    await reached;
    const killing = engine.kill(caller, id);
    letGo();
    expect(await killing).toMatchObject({ sandbox: { state: 'killed' } });
    expect(await pausing).toMatchObject({ code: 'killed' });
    expect(await engine.operations('org', id, undefined, 10)).toMatchObject({
      items: expect.arrayContaining([expect.objectContaining({ kind: 'pause', outcome: 'superseded' })]),
    });
  });

  it('answer twenty parallel resumes with one start (R46)', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    await engine.pause(caller, id);
    const answers = await Promise.all(Array.from({ length: 20 }, () => engine.resume(caller, id)));
    expect(new Set(answers.map((answer) => answer.sandbox.generation))).toEqual(new Set([2]));
    const { items } = await engine.operations('org', id, undefined, 100);
    expect(items.filter((operation) => operation.kind === 'resume')).toHaveLength(1);
  });

  it('give two concurrent forks children of their own', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    await engine.pause(caller, id);
    const [a, b] = await Promise.all([engine.fork(caller, id), engine.fork(caller, id)]);
    const ids = [...a.forks, ...b.forks].map((fork) => ('sandbox' in fork ? fork.sandbox.id : 'failed'));
    expect(new Set(ids).size).toBe(2);
  });

  it('report a sandbox as running while a snapshot of it is made', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    hold('freeze');
    const snapshot = engine.snapshot(caller, id);
    await reached;
    expect(await engine.resume(caller, id)).toMatchObject({ resumed: false, source: { kind: 'template' } });
    letGo();
    await snapshot;
  });

  it('repeat the answer of a create whose checkpoint was deleted since', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const kept = (await engine.snapshot(caller, id)).checkpoint;
    const keyed = { ...caller, idempotencyKey: 'from' };
    const first = (await engine.create(keyed, { from: kept.id })).sandbox;
    await engine.kill(caller, first.id);
    await engine.kill(caller, id);
    await engine.deleteCheckpoint('org', kept.id);
    expect((await engine.create(keyed, { from: kept.id })).sandbox.id).toBe(first.id);
  });

  it('repeat the answer for a repeated key, also for identical requests at once (R112)', async () => {
    const keyed = { ...caller, idempotencyKey: 'k1' };
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => engine.create(keyed, { name: 'one' })),
    );
    expect(new Set(answers.map(({ sandbox }) => sandbox.id)).size).toBe(1);
    expect((await engine.create(keyed, { name: 'one' })).sandbox.id).toBe(answers[0]?.sandbox.id);
    const { items } = await engine.list({ org: 'org' }, '', 10);
    expect(items).toHaveLength(1);
  });

  it('refuse another body under the same key and change nothing', async () => {
    const keyed = { ...caller, idempotencyKey: 'k1' };
    await engine.create(keyed, { name: 'one' });
    await expect(engine.create(keyed, { name: 'two' })).rejects.toMatchObject({
      code: 'idempotency_mismatch',
    });
    expect((await engine.list({ org: 'org' }, '', 10)).items).toHaveLength(1);
  });

  it('forget a key after a day, and keep the keys of two organisations apart', async () => {
    const first = (await engine.create({ org: 'org', idempotencyKey: 'k' }, {})).sandbox;
    const foreign = (await engine.create({ org: 'other', idempotencyKey: 'k' }, {})).sandbox;
    world.clock.advance(24 * 3_600_000 + 1);
    const second = (await engine.create({ org: 'org', idempotencyKey: 'k' }, {})).sandbox;
    expect(new Set([first.id, foreign.id, second.id]).size).toBe(3);
  });

  it('do not find a sandbox of another organisation (R104)', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const stranger = { org: 'other' };
    for (const attempt of [
      () => engine.get('other', id),
      () => engine.pause(stranger, id),
      () => engine.resume(stranger, id),
      () => engine.kill(stranger, id),
      () => engine.fork(stranger, id),
      () => engine.snapshot(stranger, id),
      () => engine.setLifetime('other', id, 60),
      () => engine.checkpoints('other', id, 10),
    ]) {
      await expect(attempt()).rejects.toMatchObject({ code: 'not_found' });
    }
    expect((await engine.get('org', id)).state).toBe('running');
  });

  it('keep a server from writing after another server took the operation over (R111)', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    hold('freeze');
    const stale = engine.pause(caller, id).catch(TorporError.from);
    await reached;
    // The first server misses its heartbeats; a second server finds the operation and undoes it.
    world.clock.advance(20_000);
    const second = await world.another();
    expect(await second.get('org', id)).toMatchObject({ state: 'running', checkpointId: null });
    letGo();
    expect(await stale).toMatchObject({ code: 'unreachable', retryable: true });
    expect(await second.get('org', id)).toMatchObject({ state: 'running', checkpointId: null });
    await expect(second.pause(caller, id)).resolves.toMatchObject({ sandbox: { state: 'paused' } });
  });
});
