import { TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

/** No rounds run in these tests, so that only the calls of the tests can notice the end. */
describe('a sandbox whose processes have ended', () => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld('sqlite');
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  async function ended() {
    const { id, generation } = (await engine.create(caller, {})).sandbox;
    world.runtime.work(id, '/kept', 'text');
    world.runtime.vanish(id, false);
    return { sandboxId: id, generation };
  }
  const recovered = { state: 'paused', lost: ['processes', 'connections'], evidence: 'gone' };
  const repairsOf = async (sandboxId: Awaited<ReturnType<typeof ended>>['sandboxId']) =>
    (await engine.operations('org', sandboxId, undefined, 10)).items.filter(({ kind }) => kind === 'recover');

  it('is paused as soon as the runtime reports the end (R92)', async () => {
    const instance = await ended();
    world.runtime.tellEnded(instance);
    await expect.poll(async () => (await engine.find(instance.sandboxId))?.sandbox.state).toBe('paused');
    expect(await engine.get('org', instance.sandboxId)).toMatchObject(recovered);
  });

  it('is left alone when the runtime reports the end of an earlier generation (R92)', async () => {
    const instance = await ended();
    world.runtime.tellEnded({ ...instance, generation: instance.generation - 1 });
    await engine.stop();
    expect((await engine.find(instance.sandboxId))?.sandbox.state).toBe('running');
  });

  it('is paused when a caller finds it dead, once for all callers (R92)', async () => {
    const { sandboxId } = await ended();
    const views = await Promise.all([1, 2, 3].map(() => engine.get('org', sandboxId)));
    for (const view of views) expect(view).toMatchObject(recovered);
    expect(await repairsOf(sandboxId)).toHaveLength(1);
  });

  it.each([
    ['asks for its agent', (id) => engine.agent('org', id)],
    ['dials a port', (id) => engine.dial('org', id, 80)],
  ] satisfies [string, (id: Awaited<ReturnType<typeof ended>>['sandboxId']) => Promise<unknown>][])(
    'is paused when a caller %s, and the caller gets an error (R92)',
    async (_, ask) => {
      const { sandboxId } = await ended();
      const told = await ask(sandboxId).catch((error: TorporError) => error.toBody());
      expect(told).toMatchObject({ code: 'conflict', message: 'The sandbox is paused.' });
      expect((await engine.find(sandboxId))?.sandbox).toMatchObject(recovered);
    },
  );

  it('is started again by a resume from the files that are left (R92)', async () => {
    const { sandboxId } = await ended();
    const resumed = await engine.resume(caller, sandboxId);
    expect(resumed).toMatchObject({ resumed: true, source: { kind: 'files' }, lost: ['processes'] });
    expect(world.runtime.look(sandboxId)?.files).toMatchObject({ '/kept': 'text' });
  });

  it('stays running in the answer when it cannot be observed (R85)', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    Object.assign(world.runtime, {
      observe: async () => {
        throw new TorporError('unreachable', 'not now');
      },
    });
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'unknown' });
    expect(await engine.resume(caller, id)).toMatchObject({ resumed: false });
  });
});
