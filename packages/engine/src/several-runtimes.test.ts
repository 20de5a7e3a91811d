import type { SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { failureOf } from '../testing/failure-of.ts';
import { databaseKinds } from '../testing/fresh-database.ts';
import { MemoryRuntime } from '../testing/memory-runtime.ts';
import { makeWorld, type World } from '../testing/world.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('several runtimes on %s', (kind) => {
  let world: World;
  let pods: MemoryRuntime;
  beforeEach(async () => {
    world = await makeWorld(kind, {
      runtimes: ({ store }) => {
        const capabilities = { pause: 'none', fork: false, snapshotWhileRunning: false } as const;
        pods = new MemoryRuntime({ name: 'pods', files: store, capabilities });
        return [pods];
      },
    });
  });
  afterEach(() => world.dispose());

  const eventsOf = async (id: SandboxId) =>
    (await world.engine.events({ sandboxId: id, afterSeq: 0 }, 100)).map(({ type }) => type);

  it('run their own sandboxes; the first is the default, and a request may name another', async () => {
    const usual = (await world.engine.create(caller, {})).sandbox;
    const named = (await world.engine.create(caller, { runtime: 'pods' })).sandbox;
    expect([usual.runtime, named.runtime]).toEqual(['memory', 'pods']);
    expect(world.runtime.look(usual.id)).toBeDefined();
    expect(pods.look(named.id)).toBeDefined();
    expect(world.runtime.look(named.id)).toBeUndefined();
    expect(world.engine.runtimes()).toMatchObject([
      { name: 'memory', default: true },
      { name: 'pods', default: false, capabilities: { pause: 'none' } },
    ]);
  });

  it('refuse a pause where there is none, before anything is written (R67, R68)', async () => {
    const { id } = (await world.engine.create(caller, { runtime: 'pods' })).sandbox;
    const before = await eventsOf(id);
    expect(await failureOf(world.engine.pause(caller, id))).toMatchObject({ code: 'capability_unsupported' });
    for (const policy of [{ onIdle: 'pause' }, { onTimeout: 'pause', timeoutSeconds: 5 }] as const) {
      const refused = world.engine.create(caller, { runtime: 'pods', ...policy });
      expect((await failureOf(refused)).code).toBe('capability_unsupported');
    }
    expect(await eventsOf(id)).toEqual(before);
    expect(pods.look(id)).toBeDefined();
    const rows = await world.db.query("SELECT id FROM sandboxes WHERE state IN ('pausing', 'paused')");
    expect(rows).toEqual([]);
  });

  it('end an idle sandbox that says "stop", with the reason, and keep one that says nothing (R68)', async () => {
    const stopping = (await world.engine.create(caller, { runtime: 'pods', onIdle: 'stop', idleSeconds: 60 }))
      .sandbox;
    const kept = (await world.engine.create(caller, { runtime: 'pods', idleSeconds: 60 })).sandbox;
    expect([stopping.onIdle, kept.onIdle]).toEqual(['stop', 'keep']);
    await world.engine.sweep();
    world.clock.advance(3_600_000);
    await world.engine.sweep();
    const ended = await world.engine.get('org', stopping.id);
    expect(ended).toMatchObject({ state: 'killed', onIdle: 'stop' });
    expect(ended.reason).toContain('idle');
    expect((await world.engine.get('org', kept.id)).state).toBe('running');
    expect(pods.look(stopping.id)).toBeUndefined();
  });

  it('leave a sandbox alone whose runtime is not configured any more: unknown, with a typed error', async () => {
    const { id } = (await world.engine.create(caller, { runtime: 'pods' })).sandbox;
    const before = await eventsOf(id);
    const later = await world.another({ runtimes: new Map([[world.runtime.name, world.runtime]]) });
    expect(await later.get('org', id)).toMatchObject({ state: 'running', evidence: 'unknown' });
    await later.reconcile();
    for (const call of [
      () => later.agent('org', id),
      () => later.pause(caller, id),
      () => later.kill(caller, id),
      () => later.create(caller, { runtime: 'pods' }),
    ]) {
      const error = await failureOf(call());
      expect(error).toMatchObject({ code: 'capability_unsupported', retryable: false });
      expect(error.details).toMatchObject({ runtime: 'pods', configured: ['memory'] });
    }
    expect(await eventsOf(id)).toEqual(before);
    expect(pods.look(id)).toBeDefined();
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'running' });
  });
});
