/** Sandboxes whose memory cannot be captured: what an automatic pause and an explicit pause do. */
import { type SandboxId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { databaseKinds } from '../../testing/fresh-database.ts';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe.each(databaseKinds)('a sandbox whose memory cannot be captured, on %s', (kind) => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld(kind, { settings: { clockJumpMs: Number.POSITIVE_INFINITY } });
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  /** From now on a capture of memory does this; a capture of files succeeds. */
  function memoryCapture(how: () => Promise<never>) {
    const capture = world.runtime.capture.bind(world.runtime);
    Object.assign(world.runtime, {
      capture: async (...args: Parameters<typeof capture>) =>
        args[1] === 'memory' ? how() : capture(...args),
    });
  }
  const failing =
    (code: TorporError['code'] = 'internal') =>
    async () => {
      throw new TorporError(code, 'runsc checkpoint failed: a deleted file is open');
    };
  const hanging = () => new Promise<never>(() => {});
  const eventsOf = (id: SandboxId) => engine.events({ sandboxId: id, afterSeq: 0 }, 1_000);
  const typesOf = async (id: SandboxId) => (await eventsOf(id)).map(({ type }) => type);

  async function running(request: Parameters<Engine['create']>[1] = {}) {
    const { id } = (await engine.create(caller, request)).sandbox;
    world.runtime.work(id, '/kept', 'text');
    return id;
  }
  /** Lets the pause run into its deadline, and awaits its result. */
  async function slow<T>(work: Promise<T>): Promise<T> {
    await world.clock.untilAsleepFor(45_000);
    world.clock.advance(45_000);
    return work;
  }

  it.each([
    ['timeout', { timeoutSeconds: 5 }],
    ['idle', { idleSeconds: 5 }],
  ] as const)(
    'is paused with its files on %s, and every answer reports it (R94)',
    async (reason, request) => {
      const id = await running(request);
      memoryCapture(failing());
      world.clock.advance(60_000);
      await engine.sweep();

      const sandbox = await engine.get('org', id);
      expect(sandbox).toMatchObject({ state: 'paused', lost: ['processes', 'connections'] });
      expect(sandbox.reason).toContain('a deleted file is open');
      const paused = (await eventsOf(id)).find(({ type }) => type === 'sandbox.paused');
      expect(paused?.data).toMatchObject({
        reason,
        parts: { files: true, memory: false },
        lost: ['processes', 'connections'],
        skipped: [
          { part: 'memory', code: 'internal', why: expect.stringContaining('a deleted file is open') },
        ],
      });
      const { items } = await engine.operations('org', id, undefined, 1);
      expect(items[0]).toMatchObject({ kind: 'pause', outcome: 'succeeded' });
      expect(items[0]?.phases).toContainEqual(
        expect.objectContaining({
          phase: 'keeping files only',
          detail: expect.stringContaining('a deleted file is open'),
        }),
      );
      expect((await engine.checkpoints('org', id, 10)).items.map(({ state }) => state)).toEqual(['sealed']);

      const resumed = await engine.resume(caller, id);
      expect(resumed).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
      expect(world.runtime.look(id)?.files).toMatchObject({ '/kept': 'text' });
      expect((await engine.get('org', id)).reason).toBeNull();
    },
  );

  it('is paused with its files when the captured memory cannot be used on this machine (R94)', async () => {
    const id = await running({ timeoutSeconds: 5 });
    Object.assign(world.runtime, {
      checkUsable: async () => ({ usable: false, why: 'the system has changed' }),
    });
    world.clock.advance(5_000);
    await engine.sweep();
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      lost: ['processes', 'connections'],
      reason: expect.stringContaining('the system has changed'),
    });
    await engine.reconcile();
    expect((await engine.resume(caller, id)).source.kind).toBe('files');
  });

  it('keeps running when its policy forbids the loss, and the failure is reported once (R94)', async () => {
    const id = await running({ timeoutSeconds: 5, fallback: [] });
    memoryCapture(failing());
    for (let i = 0; i < 30; i++) {
      world.clock.advance(60_000);
      await engine.sweep();
    }
    expect(await engine.get('org', id)).toMatchObject({ state: 'running' });
    expect((await typesOf(id)).filter((type) => type === 'sandbox.pause_failed')).toHaveLength(1);
    expect(world.runtime.work(id, '/more', 'text')).toBe(true);
    // The program may have closed the file in the meantime.
    Object.assign(world.runtime, { capture: Object.getPrototypeOf(world.runtime).capture });
    world.clock.advance(3_600_000);
    await engine.sweep();
    expect(await engine.get('org', id)).toMatchObject({ state: 'paused', lost: ['connections'] });
  });

  it.each(['storage_full', 'storage_readonly', 'unreachable', 'capacity'] as const)(
    'keeps running when the failure is retryable: %s (R94)',
    async (code) => {
      const id = await running({ timeoutSeconds: 5 });
      memoryCapture(failing(code));
      world.clock.advance(5_000);
      await engine.sweep();
      expect(await engine.get('org', id)).toMatchObject({ state: 'running' });
      expect((await eventsOf(id)).at(-1)).toMatchObject({
        type: 'sandbox.pause_failed',
        data: { error: { code } },
      });
    },
  );

  it('is paused with its files when the capture is too slow for the second time (R94)', async () => {
    const id = await running({ timeoutSeconds: 5 });
    memoryCapture(hanging);
    world.clock.advance(5_000);
    await slow(engine.sweep());
    expect(await engine.get('org', id)).toMatchObject({ state: 'running' });
    expect((await eventsOf(id)).at(-1)).toMatchObject({
      type: 'sandbox.pause_failed',
      data: { error: { code: 'timeout' } },
    });
    world.clock.advance(60_000);
    await slow(engine.sweep());
    expect(await engine.get('org', id)).toMatchObject({
      state: 'paused',
      lost: ['processes', 'connections'],
      reason: expect.stringContaining('45000 ms'),
    });
  });

  it.each([{}, { mode: 'memory' }] as const)(
    'refuses an explicit pause %o with a hint, and keeps running (R94)',
    async (request) => {
      const id = await running();
      memoryCapture(failing());
      const refused = await engine.pause(caller, id, request).catch((error: TorporError) => error.toBody());
      expect(refused).toMatchObject({ code: 'internal', message: expect.stringContaining('deleted file') });
      expect(refused).toMatchObject({ hint: expect.stringContaining('"files"') });
      expect(await engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'running' });
      expect((await engine.pause(caller, id, { mode: 'files' })).checkpoint.parts.memory).toBe(false);
    },
  );

  it('keeps running after an explicit pause that is too slow, which ends in time (R94)', async () => {
    const id = await running();
    memoryCapture(hanging);
    const refused = slow(engine.pause(caller, id)).catch((error: TorporError) => error.toBody());
    expect(await refused).toMatchObject({ code: 'timeout', hint: expect.stringContaining('"files"') });
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'running' });
  });
});
