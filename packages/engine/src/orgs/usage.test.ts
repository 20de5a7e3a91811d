import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { MemoryRuntime } from '../../testing/memory-runtime.ts';
import { makeWorld, type World, type WorldOptions } from '../../testing/world.ts';
import type { Egress } from '../ports/runtime.ts';
import { OTHER_ORGS, totalsOfOrgs, usageOf } from './usage.ts';

const ORG = 'acme';
const caller = { org: ORG };
const SECOND = 1_000;

/** A runtime that reports the traffic that a test gives it. */
class CountingRuntime extends MemoryRuntime {
  exchanged: Egress[] = [];

  constructor(files: World['store']) {
    super({ name: 'counting', files });
  }

  takeEgress(): readonly Egress[] {
    return this.exchanged.splice(0);
  }
}

describe.each(databaseKinds)('usage on %s', (kind) => {
  let world: World;
  let began: number;
  let counting: CountingRuntime;
  beforeEach(async () => {
    const runtimes: WorldOptions['runtimes'] = ({ store }) => {
      counting = new CountingRuntime(store);
      return [counting];
    };
    world = await makeWorld(kind, { runtimes });
    began = world.clock.now();
  });
  afterEach(() => world.dispose());
  const usage = (from = began, to = world.clock.now()) => usageOf(world.db, ORG, from, to);

  it('adds up how long the sandboxes of one organisation ran and were paused (R104)', async () => {
    const { engine, clock } = world;
    const { id } = (await engine.create(caller, { resources: { memoryMb: 256 } })).sandbox;
    const other = (await engine.create({ org: 'other' }, {})).sandbox;
    clock.advance(10 * SECOND);
    await engine.pause(caller, id);
    clock.advance(100 * SECOND);
    await engine.resume(caller, id);
    clock.advance(5 * SECOND);
    expect(await usage()).toMatchObject({
      orgId: ORG,
      runningSeconds: 15,
      pausedSeconds: 100,
      memoryMbSeconds: 15 * 256,
    });
    await engine.kill(caller, id);
    await engine.kill({ org: 'other' }, other.id);
    clock.advance(1_000 * SECOND);
    expect(await usage()).toMatchObject({ runningSeconds: 15, pausedSeconds: 100 });
    expect(await usageOf(world.db, 'nobody', began, clock.now())).toMatchObject({
      runningSeconds: 0,
      pausedSeconds: 0,
      memoryMbSeconds: 0,
      diskBytes: 0,
      egressBytes: { sent: 0, received: 0 },
    });
  });

  it('cuts spans at the ends of the range (R104)', async () => {
    const { engine, clock } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    clock.advance(60 * SECOND);
    await engine.pause(caller, id);
    clock.advance(60 * SECOND);
    const at = (seconds: number) => began + seconds * SECOND;
    expect(await usage(at(20), at(30))).toMatchObject({ runningSeconds: 10, pausedSeconds: 0 });
    expect(await usage(at(50), at(75))).toMatchObject({ runningSeconds: 10, pausedSeconds: 15 });
    expect(await usage(at(60), at(75))).toMatchObject({ runningSeconds: 0, pausedSeconds: 15 });
    // The usage of the parts of a range adds up to that of the whole.
    const [left, right, whole] = [
      await usage(at(0), at(47)),
      await usage(at(47), at(100)),
      await usage(at(0), at(100)),
    ];
    expect(left.runningSeconds + right.runningSeconds).toBe(whole.runningSeconds);
    expect(left.pausedSeconds + right.pausedSeconds).toBe(whole.pausedSeconds);
  });

  it('reports null, not 0, where the runtime does not limit or count (R104)', async () => {
    const { engine, clock } = world;
    await engine.create(caller, {});
    clock.advance(SECOND);
    expect(await usage()).toMatchObject({ runningSeconds: 1, memoryMbSeconds: null, egressBytes: null });
  });

  it('adds up the bytes that a runtime has counted, by hour (R104)', async () => {
    const { engine, clock } = world;
    const { id } = (await engine.create(caller, { runtime: 'counting' })).sandbox;
    const exchange = (sent: number, received: number) =>
      counting.exchanged.push({ instance: { sandboxId: id, generation: 1 }, sent, received });
    exchange(10, 1_000);
    await engine.countEgress();
    await engine.countEgress();
    clock.advance(2 * 3_600 * SECOND);
    exchange(5, 0);
    exchange(1, 1);
    await engine.countEgress();
    clock.advance(3_600 * SECOND);
    expect((await usage()).egressBytes).toEqual({ sent: 16, received: 1_001 });
    const late = await usage(clock.now() - 2 * 3_600 * SECOND);
    expect(late.egressBytes).toEqual({ sent: 6, received: 1 });
    expect((await usageOf(world.db, 'other', began, clock.now())).egressBytes).toEqual({
      sent: 0,
      received: 0,
    });
  });

  it('records the counted bytes when the server stops (R104)', async () => {
    const { id } = (await world.engine.create(caller, { runtime: 'counting' })).sandbox;
    counting.exchanged.push({ instance: { sandboxId: id, generation: 1 }, sent: 7, received: 8 });
    await world.engine.stop();
    world.clock.advance(SECOND);
    expect((await usage()).egressBytes).toEqual({ sent: 7, received: 8 });
  });

  it('counts the bytes of checkpoints as long as they are kept (R104)', async () => {
    const { engine, clock } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    const checkpoint = (await engine.snapshot(caller, id)).checkpoint;
    const bytes = checkpoint.bytes ?? 0;
    expect(bytes).toBeGreaterThan(0);
    clock.advance(10 * SECOND);
    expect(await usage()).toMatchObject({ diskBytes: bytes, diskByteSeconds: 10 * bytes });
    await engine.kill(caller, id);
    await engine.deleteCheckpoint(ORG, checkpoint.id);
    clock.advance(10 * SECOND);
    expect(await usage()).toMatchObject({ diskBytes: 0, diskByteSeconds: 10 * bytes });
  });

  it('loses nothing when the server dies between a pause and its answer (R104)', async () => {
    const { engine, clock, runtime } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    clock.advance(10 * SECOND);
    // The instance is gone without a report: the next server finds out.
    runtime.vanish(id, false);
    const next = await world.another();
    clock.advance(10 * SECOND);
    const { state } = await next.get(ORG, id);
    expect(state).toBe('paused');
    expect(await usage()).toMatchObject({ runningSeconds: 10, pausedSeconds: 10 });
  });

  it('agrees with the events of the ledger, and its totals with its spans (R104)', async () => {
    const { engine, clock } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    for (let i = 1; i <= 4; i++) {
      clock.advance(i * SECOND);
      await engine.pause(caller, id);
      clock.advance(i * 10 * SECOND);
      await engine.resume(caller, id);
    }
    await engine.fork(caller, id, { count: 2 });
    clock.advance(3 * SECOND);
    const events = await engine.events({ org: ORG, afterPosition: 0 }, 1_000);
    const spent = { running: 0, paused: 0 };
    const last = new Map<string, { at: number; state: string }>();
    const add = (state: string, ms: number) => {
      if (['running', 'pausing'].includes(state)) spent.running += ms;
      if (['paused', 'resuming'].includes(state)) spent.paused += ms;
    };
    for (const { sandboxId, at, state } of events) {
      const before = last.get(sandboxId);
      if (before !== undefined) add(before.state, at - before.at);
      last.set(sandboxId, { at, state });
    }
    for (const { at, state } of last.values()) add(state, clock.now() - at);
    const { runningSeconds, pausedSeconds } = await usage();
    expect([runningSeconds, pausedSeconds]).toEqual([spent.running / SECOND, spent.paused / SECOND]);
    const totals = await totalsOfOrgs(world.db, clock.now(), 100);
    expect(totals).toContainEqual({
      org: OTHER_ORGS,
      runningMs: spent.running,
      pausedMs: spent.paused,
      diskBytes: expect.any(Number),
    });
  });
});
