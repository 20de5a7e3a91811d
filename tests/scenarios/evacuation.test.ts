import { databaseKinds, makeWorld, type World } from '@torpor/engine/testing';
import type { SandboxId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const caller = { org: 'org' };

/**
 * An incident of another platform: a sandbox is created, suspended, its checkpoint is received, it is reconciled, resumed,
 * suspended again by an evacuation that dies half-way, and resumed. On that platform it ended as "suspended but has no checkpoint
 * data".
 */
describe.each(databaseKinds)('the evacuation that dies half-way, on %s', (kind) => {
  let world: World;
  let release: () => void;
  /** A server that has died stops here. It goes on at the end of the test, to show that it can do no more harm. */
  let death: Promise<void>;
  beforeEach(async () => {
    world = await makeWorld(kind);
    death = new Promise((resolve) => {
      release = resolve;
    });
  });
  afterEach(async () => {
    release();
    await world.dispose();
  });

  /** Sandbox, checkpoints and events must tell the same story at every step (R92). */
  async function agree(id: SandboxId) {
    const { engine } = world;
    const sandbox = await engine.get('org', id);
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 1_000);
    const last = events.at(-1);
    expect(last).toMatchObject({
      state: sandbox.state,
      checkpointId: sandbox.checkpointId,
      generation: sandbox.generation,
    });
    if (sandbox.state === 'paused') {
      const { items } = await engine.checkpoints('org', id, 10);
      expect(items[0]).toMatchObject({ id: sandbox.checkpointId, state: 'sealed', health: 'ok' });
    }
    for await (const { what } of engine.audit()) expect.unreachable(what);
    // The driver's job is never running while its sandbox is not (R98).
    const jobs = await engine.allJobs('org', id);
    const followed = { running: 'running', pausing: 'running', paused: 'suspended' } as Record<
      string,
      string
    >;
    for (const job of jobs) expect(job.state).toBe(followed[sandbox.state]);
    return { sandbox, types: events.map((event) => event.type) };
  }

  it('ends in a sandbox that resumes from its latest checkpoint, with everything it had (R85-R90, R95, R98)', async () => {
    const { engine, runtime } = world;

    // 14:55 created and started, a job at work.
    const { id } = (await engine.create(caller, { services: [{ name: 'driver', command: 'run' }] })).sandbox;
    runtime.work(id, '/work/notes', 'first');
    expect((await agree(id)).sandbox.state).toBe('running');

    // 15:17 suspended; the checkpoint is received in the same breath as the state changes.
    const first = await engine.pause(caller, id);
    expect((await agree(id)).sandbox).toMatchObject({ state: 'paused', checkpointId: first.checkpoint.id });
    // 15:18 the suspend event arrives twice (R88).
    const twice = await engine.pause(caller, id);
    expect(twice.checkpoint.id).toBe(first.checkpoint.id);

    // 15:19 reconciled: nothing to repair, nothing changed.
    await engine.reconcile();
    expect((await agree(id)).sandbox.state).toBe('paused');

    // 15:23 resumed; the checkpoint is not used up by that (R87).
    expect(await engine.resume(caller, id)).toMatchObject({ source: { checkpointId: first.checkpoint.id } });
    runtime.work(id, '/work/notes', 'second');
    expect(await engine.checkpoint('org', first.checkpoint.id)).toMatchObject({ state: 'sealed' });

    // 15:24 an evacuation begins: frozen, image on its way, and then the server dies.
    const evacuation = await world.another({
      faults: { pass: (point) => (point === 'pause.seal-captured' ? death : undefined) },
    });
    evacuation.pause(caller, id).catch(() => {});
    await expect
      .poll(async () => (await runtime.observe({ sandboxId: id, generation: 2 })).is)
      .toBe('frozen');
    await expect
      .poll(async () => (await engine.events({ sandboxId: id, afterSeq: 0 }, 100)).at(-1)?.data['phase'])
      .toBe('captured');
    // Received, but not sealed: it is a phase, never the state (R86).
    expect((await engine.get('org', id)).state).toBe('pausing');
    expect((await engine.checkpoints('org', id, 10)).items.map((checkpoint) => checkpoint.id)).toEqual([
      first.checkpoint.id,
    ]);

    // Its lease runs out, and another server finds what it left.
    world.clock.advance(60_000);
    const healed = await world.another();
    const after = await agree(id);
    expect(after.sandbox.state).toBe('running');
    expect(after.types).toContain('operation.taken_over');
    expect(after.types).toContain('sandbox.pause_failed');
    expect(runtime.look(id)).toMatchObject({ files: { '/work/notes': 'second' }, counter: 2 });

    // The contradiction cannot be had: it pauses, and it comes back.
    const second = await healed.pause(caller, id);
    expect((await agree(id)).sandbox.checkpointId).toBe(second.checkpoint.id);
    expect(await healed.resume(caller, id)).toMatchObject({
      sandbox: { state: 'running' },
      source: { checkpointId: second.checkpoint.id, kind: 'memory' },
      lost: [],
    });
    expect(runtime.look(id)).toMatchObject({ files: { '/work/notes': 'second' }, counter: 2 });

    // The dead server wakes up and goes on where it was: nothing of it gets through (R111).
    release();
    await evacuation.stop();
    const { types } = await agree(id);
    expect(types.filter((type) => type.startsWith('job.'))).toEqual([
      'job.created',
      'job.suspended',
      'job.resumed',
      'job.suspended',
      'job.resumed',
    ]);
  });
});
