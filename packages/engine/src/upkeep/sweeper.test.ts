import type { SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('lifetimes on %s', (kind) => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld(kind);
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  const reasons = async (id: SandboxId) =>
    (await engine.events({ sandboxId: id, afterSeq: 0 }, 100))
      .map((event) => event.data['reason'])
      .filter(Boolean);

  it('pause a sandbox with its memory when they end, or kill it if configured', async () => {
    const pausing = (await engine.create(caller, { timeoutSeconds: 60 })).sandbox;
    const killing = (await engine.create(caller, { timeoutSeconds: 60, onTimeout: 'kill' })).sandbox;
    world.runtime.work(pausing.id, '/last', 'write');
    await engine.sweep();
    world.clock.advance(60_000);
    await engine.sweep();
    expect(await engine.get('org', pausing.id)).toMatchObject({ state: 'paused', endsAt: null });
    expect((await engine.get('org', killing.id)).state).toBe('killed');
    expect(await reasons(pausing.id)).toContain('timeout');
    await engine.resume(caller, pausing.id);
    expect(world.runtime.look(pausing.id)?.files).toMatchObject({ '/last': 'write' });
  });

  it('start again at a resume, and are never shortened by it (R29)', async () => {
    const { id } = (await engine.create(caller, { timeoutSeconds: 3_600 })).sandbox;
    await engine.pause(caller, id);
    world.clock.advance(1_000_000);
    const resumed = await engine.resume(caller, id);
    expect(resumed.sandbox.endsAt).toBe(world.clock.now() + 3_600_000);
    // A reconnect that names five minutes leaves the hour alone; one that names two hours extends it.
    expect((await engine.resume(caller, id, { timeoutSeconds: 300 })).sandbox.endsAt).toBe(
      resumed.sandbox.endsAt,
    );
    const longer = await engine.resume(caller, id, { timeoutSeconds: 7_200 });
    expect(longer.sandbox.endsAt).toBe(world.clock.now() + 7_200_000);
  });

  it('are checked again under the lock, so that a deadline that was moved meanwhile counts', async () => {
    const { id } = (await engine.create(caller, { timeoutSeconds: 60 })).sandbox;
    world.clock.advance(61_000);
    const original = world.db.query.bind(world.db);
    let moved = false;
    // The sweeper reads the due sandbox; before it takes the lock, a request extends the lifetime.
    Object.assign(world.db, {
      query: async (sql: string, params?: readonly (string | number | null)[]) => {
        const rows = await original(sql, params);
        if (!moved && sql.includes('ends_at <= $1')) {
          moved = true;
          await engine.setLifetime('org', id, 600);
        }
        return rows;
      },
    });
    await engine.sweep();
    await engine.sweep();
    expect(moved).toBe(true);
    expect((await engine.get('org', id)).state).toBe('running');
  });

  it('skip one round when the clock jumps, and report it', async () => {
    const { id } = (await engine.create(caller, { timeoutSeconds: 60 })).sandbox;
    const monotonic = world.clock.monotonic.bind(world.clock);
    let held = 0;
    Object.assign(world.clock, { monotonic: () => monotonic() - held });
    await engine.sweep();
    held = 3_600_000;
    world.clock.advance(3_600_000);
    await engine.sweep();
    expect((await engine.get('org', id)).state).toBe('running');
    expect(world.reported).toContainEqual({ what: 'clock jumped', facts: { byMs: 3_600_000 } });
    await engine.sweep();
    expect((await engine.get('org', id)).state).toBe('paused');
  });
});

describe.each(databaseKinds)('idleness on %s', (kind) => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld(kind, { settings: { clockJumpMs: Number.POSITIVE_INFINITY } });
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  it('pauses a sandbox that is not used', async () => {
    const alone = await world.another({ ownsDataDirectory: true });
    const { id } = (await alone.create(caller, { idleSeconds: 120 })).sandbox;
    world.clock.advance(119_000);
    await alone.sweep();
    expect((await engine.get('org', id)).state).toBe('running');
    world.clock.advance(1_000);
    await alone.sweep();
    expect((await engine.get('org', id)).state).toBe('paused');
  });

  it('is prevented by a lease on any server, and by nothing else', async () => {
    const { id } = (await engine.create(caller, { idleSeconds: 5 })).sandbox;
    const other = await world.another();
    const release = other.leases.hold(id);
    for (let i = 0; i < 10; i++) {
      world.clock.advance(10_000);
      await other.leases.flush();
      await engine.sweep();
    }
    expect((await engine.get('org', id)).state).toBe('running');
    release();
    await other.leases.flush();
    world.clock.advance(60_000);
    await engine.sweep();
    expect((await engine.get('org', id)).state).toBe('paused');
  });

  it('never ends a sandbox that was paused meanwhile', async () => {
    const { id } = (await engine.create(caller, { idleSeconds: 60, onIdle: 'kill' })).sandbox;
    world.clock.advance(120_000);
    const original = world.db.query.bind(world.db);
    let slept = false;
    Object.assign(world.db, {
      query: async (sql: string, params?: readonly (string | number | null)[]) => {
        const rows = await original(sql, params);
        if (!slept && sql.includes('a.idle_at <= $1')) {
          slept = true;
          await engine.pause(caller, id);
        }
        return rows;
      },
    });
    await engine.sweep();
    expect(slept).toBe(true);
    expect((await engine.get('org', id)).state).toBe('paused');
  });

  it('is all that a lease prevents: an explicit pause and a timeout still happen', async () => {
    const paused = (await engine.create(caller, {})).sandbox;
    engine.leases.hold(paused.id);
    await engine.pause(caller, paused.id);
    const timed = (await engine.create(caller, { timeoutSeconds: 60 })).sandbox;
    engine.leases.hold(timed.id);
    world.clock.advance(60_000);
    await engine.sweep();
    expect((await engine.get('org', paused.id)).state).toBe('paused');
    expect((await engine.get('org', timed.id)).state).toBe('paused');
  });

  it('keeps or kills the sandbox if configured', async () => {
    const keep = (await engine.create(caller, { idleSeconds: 60, onIdle: 'keep' })).sandbox;
    const gone = (await engine.create(caller, { idleSeconds: 60, onIdle: 'kill' })).sandbox;
    world.clock.advance(100_000);
    await engine.sweep();
    expect((await engine.get('org', keep.id)).state).toBe('running');
    expect((await engine.get('org', gone.id)).state).toBe('killed');
  });
});
