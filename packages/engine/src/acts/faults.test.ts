import { TorporError } from '@torpor/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { FAULTS, type Fault, type FaultyCall, withFaults } from '../../testing/faulty-runtime.ts';
import { settle } from '../../testing/settle.ts';
import { makeWorld, type World } from '../../testing/world.ts';

const caller = { org: 'org' };

async function faultyWorld() {
  const orders: { call: FaultyCall; fault: Fault }[] = [];
  const next = (call: FaultyCall) => (orders[0]?.call === call ? orders.shift()?.fault : undefined);
  const world = await makeWorld('sqlite', {
    parts: ({ runtimes, clock }) => ({
      runtimes: new Map([...runtimes].map(([name, runtime]) => [name, withFaults(runtime, clock, next)])),
    }),
  });
  world.runtime.keepsInstances = false;
  return { world, orders };
}

/** Faults after which a call has not done its work. */
const BROKEN = FAULTS.filter((fault) => fault !== 'slow');

describe('a pause', () => {
  let world: World;
  afterEach(() => settle(world.clock, world.dispose()));

  const calls: readonly FaultyCall[] = ['presync', 'freeze', 'capture', 'checkUsable'];
  for (const call of calls) {
    for (const fault of BROKEN) {
      // These false answers are harmless: a presync that did nothing, and an inspection that finds the checkpoint usable.
      if (fault === 'lie' && (call === 'presync' || call === 'checkUsable')) continue;
      it(`leaves the sandbox running when ${call} fails by "${fault}" (R78, R85)`, async () => {
        const faulty = await faultyWorld();
        world = faulty.world;
        const { engine, runtime, clock } = world;
        const { id } = (await engine.create(caller, {})).sandbox;
        runtime.work(id, '/a', '1');
        faulty.orders.push({ call, fault });

        const error = await settle(clock, engine.pause(caller, id).catch(TorporError.from));

        expect(error).toBeInstanceOf(TorporError);
        expect(await engine.get('org', id)).toMatchObject({
          state: 'running',
          evidence: 'running',
          checkpointId: null,
        });
        expect(runtime.work(id, '/b', '2')).toBe(true);
        expect(runtime.look(id)).toMatchObject({ files: { '/a': '1', '/b': '2' }, counter: 2 });
        // Nothing is left behind, and the next pause works.
        await settle(clock, engine.reconcile());
        expect((await engine.checkpoints('org', id, 10)).items).toEqual([]);
        await expect(engine.pause(caller, id)).resolves.toMatchObject({ sandbox: { state: 'paused' } });
      });
    }
  }

  it('leaves the sandbox running when the runtime captures nothing and reports success (R94)', async () => {
    const faulty = await faultyWorld();
    world = faulty.world;
    const { engine, runtime, clock } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    faulty.orders.push({ call: 'capture', fault: 'lie' }, { call: 'checkUsable', fault: 'lie' });
    const error = await settle(clock, engine.pause(caller, id).catch(TorporError.from));
    expect(error).toMatchObject({ code: 'checkpoint_corrupt' });
    expect(runtime.work(id, '/a', '1')).toBe(true);
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', checkpointId: null });
  });

  it('is finished by the reconciler when the thaw fails too (R108)', async () => {
    const faulty = await faultyWorld();
    world = faulty.world;
    const { engine, runtime, clock } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    faulty.orders.push({ call: 'capture', fault: 'fail' }, { call: 'thaw', fault: 'fail' });
    await engine.pause(caller, id).catch(TorporError.from);
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'frozen' });
    await settle(clock, engine.reconcile());
    expect(runtime.work(id, '/b', '2')).toBe(true);
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.at(-1)).toMatchObject({ type: 'reconcile.repaired', data: { did: 'thawed it' } });
  });
});

describe('a resume', () => {
  let world: World;
  afterEach(() => settle(world.clock, world.dispose()));

  const passing: readonly [FaultyCall, Fault][] = [
    ['start', 'fail'],
    ['start', 'fail-after'],
    ['start', 'lie'],
    ['start', 'hang'],
    ['start', 'hang-after'],
    ['checkUsable', 'fail'],
    ['checkUsable', 'hang'],
    ['observe', 'lie'],
    ['observe', 'hang'],
    ['destroy', 'fail'],
    ['destroy', 'hang'],
  ];
  it.each(passing)(
    'returns to paused and can be retried when %s fails by "%s" (R70, R92, R99)',
    async (call, fault) => {
      const faulty = await faultyWorld();
      world = faulty.world;
      const { engine, runtime, clock } = world;
      const { id } = (await engine.create(caller, {})).sandbox;
      runtime.work(id, '/a', '1');
      const { checkpoint } = await engine.pause(caller, id);
      await settle(clock, Promise.resolve());
      faulty.orders.push({ call, fault });

      const error = await settle(clock, engine.resume(caller, id).catch(TorporError.from));

      expect(error).toMatchObject({ retryable: true });
      expect(await engine.get('org', id)).toMatchObject({ state: 'paused', checkpointId: checkpoint.id });
      const again = await settle(clock, engine.resume(caller, id));
      expect(again).toMatchObject({ source: { kind: 'memory', checkpointId: checkpoint.id }, lost: [] });
      expect(runtime.look(id)).toMatchObject({ files: { '/a': '1' }, counter: 1 });
      await settle(clock, engine.reconcile());
      const instances = [];
      for await (const instance of runtime.list()) instances.push(instance);
      expect(instances).toHaveLength(1);
    },
  );
});

describe('a kill', () => {
  let world: World;
  afterEach(() => settle(world.clock, world.dispose()));

  it.each(['fail', 'hang'] as const)(
    'that fails by "%s" leaves the sandbox killing until a later try succeeds (R81)',
    async (fault) => {
      const faulty = await faultyWorld();
      world = faulty.world;
      const { engine, runtime, clock } = world;
      const { id } = (await engine.create(caller, {})).sandbox;
      faulty.orders.push({ call: 'destroy', fault });
      const error = await settle(clock, engine.kill(caller, id).catch(TorporError.from));
      expect(error).toMatchObject({ retryable: true });
      expect((await engine.get('org', id)).state).toBe('killing');
      await settle(clock, engine.reconcile());
      expect((await engine.get('org', id)).state).toBe('killed');
      expect(runtime.look(id)).toBeUndefined();
    },
  );
});

describe('a create', () => {
  let world: World;
  afterEach(() => settle(world.clock, world.dispose()));

  it('that fails leaves a sandbox that never ran and nothing else, and frees its key for another try', async () => {
    const faulty = await faultyWorld();
    world = faulty.world;
    const { engine, runtime } = world;
    faulty.orders.push({ call: 'start', fault: 'fail-after' });
    const keyed = { ...caller, idempotencyKey: 'k' };
    await expect(engine.create(keyed, {})).rejects.toMatchObject({ code: 'unreachable' });
    const instances = [];
    for await (const instance of runtime.list()) instances.push(instance);
    expect(instances).toEqual([]);
    const second = (await engine.create(keyed, {})).sandbox;
    const { items } = await engine.list({ org: 'org' }, '', 10);
    expect(items.map(({ id, state }) => (id === second.id ? state : `not ${state}`)).sort()).toEqual([
      'not failed',
      'running',
    ]);
  });
});
