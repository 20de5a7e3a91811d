import type { SandboxId } from '@torpor/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { type MemoryRuntime, runtimeWithoutPause } from '../../testing/memory-runtime.ts';
import { listedInstances } from '../../testing/runtime-subject.ts';
import { makeWorld, type World } from '../../testing/world.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('the reconciler on %s', (kind) => {
  let world: World;
  afterEach(() => world.dispose());

  it('turns a gone container with its files into a recovered checkpoint (R108)', async () => {
    world = await makeWorld(kind);
    const { engine, runtime } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    runtime.work(id, '/a', '1');
    runtime.vanish(id, false);
    await engine.reconcile();
    const sandbox = await engine.get('org', id);
    expect(sandbox).toMatchObject({ state: 'paused', lost: ['processes', 'connections'] });
    const { items } = await engine.checkpoints('org', id, 10);
    expect(items).toMatchObject([
      { id: sandbox.checkpointId, recovered: true, parts: { files: true, memory: false } },
    ]);
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.at(-1)).toMatchObject({
      type: 'sandbox.recovered',
      data: { found: 'its processes have ended' },
    });
    expect(await engine.resume(caller, id)).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
    expect(runtime.look(id)?.files).toMatchObject({ '/a': '1' });
  });

  it('returns to the last checkpoint when the files are gone too, and never silently (R92, R93)', async () => {
    world = await makeWorld(kind);
    const { engine, runtime } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    runtime.work(id, '/a', '1');
    const { checkpoint } = await engine.pause(caller, id);
    await engine.resume(caller, id);
    runtime.work(id, '/b', '2');
    runtime.vanish(id, true);
    await engine.reconcile();
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      checkpointId: checkpoint.id,
      lost: ['processes', 'files', 'connections'],
    });
    await expect(engine.resume(caller, id)).rejects.toMatchObject({ code: 'checkpoint_missing' });
    expect((await engine.get('org', id)).state).toBe('paused');
    const resumed = await engine.resume(caller, id, { fallback: ['files', 'previous'] });
    expect(resumed).toMatchObject({ source: { checkpointId: checkpoint.id }, lost: ['files'] });
  });

  it('declares a sandbox lost only when it was never paused and nothing is left', async () => {
    world = await makeWorld(kind);
    const { engine, runtime } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    runtime.vanish(id, true);
    await engine.reconcile();
    expect(await engine.get('org', id)).toMatchObject({ state: 'lost' });
  });

  it('never takes a runtime that does not answer for one that has lost its sandboxes (R77)', async () => {
    let down = false;
    world = await makeWorld(kind, {
      parts: ({ runtimes }) => ({
        runtimes: new Map(
          [...runtimes].map(([name, runtime]) => [
            name,
            new Proxy(runtime, {
              get: (target, call) => {
                if (call === 'observe' && down) return async () => Promise.reject(new Error('503'));
                const value: unknown = Reflect.get(target, call, target);
                return typeof value === 'function' ? value.bind(target) : value;
              },
            }),
          ]),
        ),
      }),
    });
    const { engine } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    down = true;
    const round = await engine.reconcile();
    expect(round.unknown).toBe(1);
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'unknown' });
    down = false;
    await engine.reconcile();
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'running' });
  });

  it('reads all rows in pages and is not stopped by a failing one (R81)', async () => {
    let bad = '';
    world = await makeWorld(kind, {
      settings: { pageSize: 3 },
      parts: ({ runtimes }) => ({
        runtimes: new Map(
          [...runtimes].map(([name, runtime]) => [
            name,
            new Proxy(runtime, {
              get: (target, call) => {
                const value: unknown = Reflect.get(target, call, target);
                if (typeof value !== 'function') return value;
                if (call !== 'recoverFiles') return value.bind(target);
                return async (...args: [{ sandboxId: string }]) => {
                  if (args[0].sandboxId === bad) throw new Error('row 3 throws');
                  return value.apply(target, args);
                };
              },
            }),
          ]),
        ),
      }),
    });
    const { engine, runtime } = world;
    const ids: SandboxId[] = [];
    for (let i = 0; i < 10; i++) ids.push((await engine.create(caller, {})).sandbox.id);
    bad = ids[3] ?? '';
    for (const id of ids) runtime.vanish(id, false);
    await engine.reconcile();
    const states = await Promise.all(ids.map(async (id) => (await engine.get('org', id)).state));
    expect(states.filter((state) => state === 'paused')).toHaveLength(9);
    expect(states[3]).toBe('running');
  });

  it('refuses a database of another data directory', async () => {
    world = await makeWorld(kind);
    const { id } = (await world.engine.create(caller, {})).sandbox;
    await expect(world.another({ dataDirectoryId: 'elsewhere' })).rejects.toMatchObject({ code: 'in_use' });
    expect((await world.engine.get('org', id)).state).toBe('running');
  });

  it('destroys instances that no sandbox owns, and no others', async () => {
    world = await makeWorld(kind);
    const { engine, runtime } = world;
    const { id } = (await engine.create(caller, {})).sandbox;
    const { checkpointId } = await engine.template('org', 'base');
    if (checkpointId === null) throw new Error('It is not ready.');
    const from = {
      id: checkpointId,
      parts: { files: true, memory: false },
      needs: {},
      path: world.store.path(checkpointId),
    };
    const stray = { sandboxId: 'sbx_00000000000000000000', generation: 1 } as const;
    const spec = { org: 'default', env: {}, services: [], network: {}, resources: {} };
    await runtime.start(stray, from, 'files', spec, new AbortController().signal);
    await engine.reconcile();
    expect(await runtime.observe(stray)).toMatchObject({ is: 'gone', files: false });
    expect(await runtime.observe({ sandboxId: id, generation: 1 })).toMatchObject({ is: 'running' });
  });

  it.each([
    { keeps: true, removed: [] },
    { keeps: false, removed: [expect.stringContaining('which no sandbox owned')] },
  ])('reports the frozen instance of a paused sandbox only when it is removed: kept $keeps', async (when) => {
    world = await makeWorld(kind);
    const { engine, runtime } = world;
    runtime.keepsInstances = when.keeps;
    const { id } = (await engine.create(caller, {})).sandbox;
    // The server dies after the commit, before it calls `destroy`.
    Object.assign(runtime, { destroy: async () => {} });
    await engine.pause(caller, id);
    Reflect.deleteProperty(runtime, 'destroy');
    expect(await listedInstances(runtime)).toEqual([{ sandboxId: id, generation: 1 }]);

    const { repaired, did } = await engine.reconcile();

    expect({ repaired, did: did.map(({ what }) => what) }).toEqual({
      repaired: when.removed.length,
      did: when.removed,
    });
    expect(await listedInstances(runtime)).toEqual([]);
  });
});

describe('a runtime that cannot pause', () => {
  let world: World;
  let pods: MemoryRuntime;
  afterEach(() => world.dispose());

  it('never yields a paused sandbox, nor deletes one (R66, R67, R68)', async () => {
    world = await makeWorld('sqlite', {
      runtimes: ({ store }) => {
        pods = runtimeWithoutPause({ files: store });
        return [pods];
      },
    });
    const { engine, clock } = world;
    const { id, onIdle, onTimeout } = (
      await engine.create(caller, { runtime: 'pods', timeoutSeconds: 3_600 })
    ).sandbox;
    expect({ onIdle, onTimeout }).toEqual({ onIdle: 'keep', onTimeout: 'kill' });
    await expect(engine.pause(caller, id)).rejects.toMatchObject({ code: 'capability_unsupported' });
    await expect(engine.snapshot(caller, id)).rejects.toMatchObject({ code: 'capability_unsupported' });
    await expect(engine.fork(caller, id)).rejects.toMatchObject({ code: 'capability_unsupported' });
    expect(pods.work(id, '/a', '1')).toBe(true);
    clock.advance(1_000_000);
    await engine.sweep();
    await engine.sweep();
    expect((await engine.get('org', id)).state).toBe('running');
    const paused = await world.db.query("SELECT id FROM sandboxes WHERE state = 'paused'");
    expect(paused).toEqual([]);
  });

  it('refuses a policy that it cannot support, before anything is written', async () => {
    world = await makeWorld('sqlite', { runtimes: ({ store }) => [runtimeWithoutPause({ files: store })] });
    for (const policy of [{ onTimeout: 'pause' }, { onIdle: 'pause' }] as const) {
      await expect(world.engine.create(caller, { runtime: 'pods', ...policy })).rejects.toMatchObject({
        code: 'capability_unsupported',
      });
    }
    expect((await world.engine.list({ org: 'org' }, '', 10)).items).toEqual([]);
  });
});
