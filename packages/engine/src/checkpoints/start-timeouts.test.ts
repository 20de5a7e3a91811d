import type { CheckpointId, SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('a memory image whose restore times out, on %s', (kind) => {
  let world: World;
  let engine: Engine;
  /** Sandboxes whose restore never ends. */
  let hanging: Set<SandboxId>;
  /** Called when a start of one of these sandboxes has begun. */
  let hangs: () => void = () => {};
  beforeEach(async () => {
    world = await makeWorld(kind, { settings: { clockJumpMs: Number.POSITIVE_INFINITY } });
    engine = world.engine;
    // Every start reads its image, unless a test says otherwise.
    world.runtime.keepsInstances = false;
    hanging = new Set();
    const start = world.runtime.start.bind(world.runtime);
    Object.assign(world.runtime, {
      start: (...args: Parameters<typeof start>) => {
        if (args[2] !== 'memory' || !hanging.has(args[0].sandboxId)) return start(...args);
        hangs();
        return new Promise(() => {});
      },
    });
  });
  afterEach(() => world.dispose());

  async function asleep(request = {}) {
    const { id } = (await engine.create(caller, request)).sandbox;
    world.runtime.work(id, '/kept', 'text');
    const { checkpoint } = await engine.pause(caller, id);
    return { id, checkpointId: checkpoint.id };
  }
  async function neverWaking(request = {}) {
    const one = await asleep(request);
    hanging.add(one.id);
    return one;
  }
  /** Resumes a sandbox whose restore hangs, and lets the start run into its time limit. */
  async function resume(on: Engine, id: SandboxId, request = {}) {
    const begun = new Promise<void>((resolve) => {
      hangs = resolve;
    });
    const resuming = on.resume(caller, id, request).catch((error: TorporError) => error.toBody());
    // Calls before the start have time limits of their own, which must not run out instead.
    await begun;
    await world.clock.untilAsleepFor(60_000);
    world.clock.advance(60_000);
    return resuming;
  }
  async function anotherWakes() {
    const { id } = await asleep();
    expect((await engine.resume(caller, id)).source.kind).toBe('memory');
  }
  const faultsOf = async (id: CheckpointId) => (await engine.checkpoint('org', id)).faults;

  it('is skipped after the second timeout when another sandbox was restored in between (R93)', async () => {
    const { id, checkpointId } = await neverWaking();
    expect(await resume(engine, id)).toMatchObject({
      code: 'timeout',
      hint: expect.stringContaining('mode "files"'),
    });
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      lost: ['connections'],
      checkpointHealth: { health: 'ok', parts: [] },
    });
    expect(await faultsOf(checkpointId)).toMatchObject([{ found: 'start', code: 'timeout', times: 1 }]);
    await anotherWakes();

    const skipped = [
      {
        checkpointId,
        part: 'memory',
        code: 'checkpoint_incompatible',
        why: expect.stringContaining('did not come back in time, 2 times'),
      },
    ];
    expect(await resume(engine, id)).toMatchObject({
      source: { checkpointId, kind: 'files' },
      lost: ['processes'],
      skipped,
    });
    expect(world.runtime.look(id)?.files).toMatchObject({ '/kept': 'text' });
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.at(-1)).toMatchObject({ type: 'sandbox.resumed', data: { skipped } });
    expect(
      events.some(({ type, data }) => type === 'checkpoint.health' && data['health'] === 'damaged'),
    ).toBe(true);
    const { items } = await engine.operations('org', id, undefined, 1);
    expect(items[0]?.phases).toContainEqual(
      expect.objectContaining({ phase: 'falling back', detail: expect.stringContaining('2 times') }),
    );
    expect(await engine.checkpoint('org', checkpointId)).toMatchObject({
      state: 'sealed',
      parts: { memory: true },
    });
    // A second request gets the same answer.
    expect(await engine.resume(caller, id)).toMatchObject({ skipped });
  });

  it('is tried again as long as no other sandbox is restored either (R93)', async () => {
    const { id, checkpointId } = await neverWaking();
    await anotherWakes();
    world.clock.advance(1_000);
    for (let i = 0; i < 3; i++) expect(await resume(engine, id)).toMatchObject({ code: 'timeout' });
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      checkpointHealth: { health: 'ok' },
    });
    expect(await faultsOf(checkpointId)).toMatchObject([{ times: 3 }]);
    // After a restore of another sandbox, the next resume does not wait for the memory.
    await anotherWakes();
    expect(await engine.resume(caller, id)).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
  });

  it('is tried again when another sandbox only went on in memory, which restores no image (R93)', async () => {
    const { id, checkpointId } = await neverWaking();
    expect(await resume(engine, id)).toMatchObject({ code: 'timeout' });
    world.runtime.keepsInstances = true;
    await anotherWakes();
    expect(await resume(engine, id)).toMatchObject({ code: 'timeout' });
    expect(await faultsOf(checkpointId)).toMatchObject([{ code: 'timeout', times: 2 }]);
  });

  it('is remembered by a server that starts later (R93)', async () => {
    const { id } = await neverWaking();
    await resume(engine, id);
    const later = await world.another();
    const other = await asleep();
    await later.resume(caller, other.id);
    expect(await resume(later, id)).toMatchObject({ source: { kind: 'files' } });
  });

  it('is cleared of suspicion when its restore succeeds (R93)', async () => {
    const { id, checkpointId } = await neverWaking();
    await resume(engine, id);
    await anotherWakes();
    hanging.delete(id);
    expect(await engine.resume(caller, id)).toMatchObject({ source: { kind: 'memory' }, skipped: [] });
    expect(await faultsOf(checkpointId)).toEqual([]);
  });

  it('is tried again when the policy allows nothing else (R93)', async () => {
    const { id, checkpointId } = await neverWaking({ fallback: [] });
    for (let i = 0; i < 3; i++) {
      expect(await resume(engine, id)).toMatchObject({ code: 'timeout' });
      await anotherWakes();
    }
    hanging.delete(id);
    expect(await engine.resume(caller, id)).toMatchObject({ source: { checkpointId, kind: 'memory' } });
  });

  it('stays unusable when a verification finds its contents intact (R93)', async () => {
    const { id, checkpointId } = await neverWaking();
    await resume(engine, id);
    await anotherWakes();
    await resume(engine, id);
    await engine.verify('org', checkpointId);
    await engine.inspectCheckpoints();
    expect(await faultsOf(checkpointId)).toMatchObject([{ found: 'start', code: 'checkpoint_incompatible' }]);
    expect((await engine.checkpoint('org', checkpointId)).health).toBe('damaged');
  });
});
