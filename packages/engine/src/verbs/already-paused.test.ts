import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MemoryRuntime } from '../../testing/memory-runtime.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };
const keyed = { ...caller, idempotencyKey: 'key' };

describe('a pause of a paused sandbox', () => {
  let world: World;
  let engine: Engine;
  let runtime: MemoryRuntime;
  beforeEach(async () => {
    // After a snapshot, this runtime starts the sandbox again.
    world = await makeWorld('sqlite', {
      runtimes: ({ store }) => {
        const capabilities = { snapshotWhileRunning: false };
        runtime = new MemoryRuntime({ name: 'restarting', files: store, capabilities });
        return [runtime];
      },
    });
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  /** A running sandbox that was paused once before. */
  async function resumed() {
    const { id } = (await engine.create(caller, { runtime: 'restarting' })).sandbox;
    await engine.pause(caller, id);
    await engine.resume(caller, id);
    return { id };
  }

  const failStarts = () => Object.assign(runtime, { start: () => Promise.reject(new Error('no start')) });
  const allowStarts = () => Object.assign(runtime, { start: MemoryRuntime.prototype.start });

  it('names the pause', async () => {
    const { id } = await resumed();
    const { operation, checkpoint } = await engine.pause(caller, id);
    expect(await engine.pause(caller, id)).toMatchObject({ paused: false, operation, checkpoint });
  });

  it('names the pause after a resume that failed, and after a snapshot of the paused sandbox', async () => {
    const { id } = await resumed();
    const { operation, checkpoint } = await engine.pause(caller, id);
    failStarts();
    await expect(engine.resume(caller, id)).rejects.toThrow();
    await engine.snapshot(caller, id);
    expect(await engine.pause(caller, id)).toMatchObject({ operation, checkpoint: { id: checkpoint.id } });
  });

  it.each(['snapshot', 'fork'] as const)(
    'names the %s that sealed it and could not start it again, also when its key is repeated',
    async (verb) => {
      const { id } = await resumed();
      failStarts();
      const { operation } = await engine[verb](caller, id);
      const { state, checkpointId } = await engine.get('org', id);
      expect(state).toBe('paused');
      const expected = { operation: { id: operation.id, kind: verb }, checkpoint: { id: checkpointId } };
      expect(await engine.pause(keyed, id)).toMatchObject(expected);
      allowStarts();
      await engine.resume(caller, id);
      expect(await engine.pause(keyed, id)).toMatchObject(expected);
    },
  );

  it('names no operation after a rollback that failed, and repeats its checkpoint', async () => {
    const { id } = await resumed();
    const target = (await engine.snapshot(caller, id)).checkpoint;
    failStarts();
    await expect(engine.rollback(caller, id, { checkpointId: target.id })).rejects.toThrow();
    const { state, checkpointId } = await engine.get('org', id);
    expect(state).toBe('paused');
    const expected = { operation: null, checkpoint: { id: checkpointId } };
    expect(await engine.pause(keyed, id)).toMatchObject(expected);
    expect(await engine.pause(keyed, id)).toMatchObject(expected);
  });

  it('names the recovery that paused it', async () => {
    const { id } = await resumed();
    runtime.vanish(id, true);
    await engine.reconcile();
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      lost: expect.arrayContaining(['files']),
    });
    expect(await engine.pause(keyed, id)).toMatchObject({ operation: { kind: 'recover' }, paused: false });
  });

  it('names the operation that paused it, and not an earlier recovery that thawed it', async () => {
    const { id } = await resumed();
    const { generation } = await engine.get('org', id);
    await runtime.freeze({ sandboxId: id, generation });
    await engine.reconcile();
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'running' });
    failStarts();
    const { operation } = await engine.snapshot(caller, id);
    expect(await engine.pause(keyed, id)).toMatchObject({ operation: { id: operation.id } });
    expect(await engine.pause(keyed, id)).toMatchObject({ operation: { id: operation.id } });
  });
});

describe('a resume of a running sandbox', () => {
  it('that a snapshot has started again repeats what it was started from', async () => {
    const capabilities = { snapshotWhileRunning: false };
    const world = await makeWorld('sqlite', {
      runtimes: ({ store }) => [new MemoryRuntime({ name: 'restarting', files: store, capabilities })],
    });
    const { engine } = world;
    const { id } = (await engine.create(caller, { runtime: 'restarting' })).sandbox;
    const { checkpoint } = await engine.snapshot(caller, id);
    const expected = { source: { checkpointId: checkpoint.id, kind: 'memory' }, resumed: false };
    expect(await engine.resume(keyed, id)).toMatchObject(expected);
    expect(await engine.resume(keyed, id)).toMatchObject(expected);
    await world.dispose();
  });
});
