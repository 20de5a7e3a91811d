import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ProviderRuntime } from '../../testing/provider-runtime.ts';
import { makeWorld, type World } from '../../testing/world.ts';

const caller = { org: 'org' };

describe('a checkpoint that a provider keeps and a start uses up', () => {
  let world: World;
  let provider: ProviderRuntime;
  let bury: () => void;
  let death: Promise<void>;
  beforeEach(async () => {
    provider = new ProviderRuntime();
    death = new Promise((resolve) => {
      bury = resolve;
    });
    world = await makeWorld('sqlite', { runtimes: () => [provider] });
  });
  afterEach(async () => {
    bury();
    await world.dispose();
  });

  const pausedOne = async () => {
    const { id } = await world.engine.create(caller, { runtime: 'provider' });
    provider.work(id, '/a', '1');
    const { checkpoint } = await world.engine.pause(caller, id);
    return { id, checkpoint };
  };

  it('is sealed by the provider’s word, and gone after the resume', async () => {
    const { engine } = world;
    const { id, checkpoint } = await pausedOne();
    expect(checkpoint).toMatchObject({
      external: true,
      replayable: false,
      location: `provider:${checkpoint.id}`,
    });
    await engine.resume(caller, id);
    expect(provider.look(id)).toMatchObject({ files: { '/a': '1' }, counter: 1 });
    expect(await engine.checkpoint('org', checkpoint.id)).toMatchObject({ state: 'deleted' });
    expect(await engine.get('org', id)).toMatchObject({ state: 'running', checkpointId: null });
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.at(-1)).toMatchObject({ type: 'checkpoint.deleted', data: { why: 'consumed' } });
    for (let cycle = 0; cycle < 3; cycle++) {
      await engine.pause(caller, id);
      await engine.resume(caller, id);
    }
    expect(provider.look(id)).toMatchObject({ files: { '/a': '1' } });
  });

  it('belongs to its sandbox alone', async () => {
    const { id, checkpoint } = await pausedOne();
    await expect(world.engine.fork(caller, id)).rejects.toMatchObject({ code: 'capability_unsupported' });
    await expect(world.engine.create(caller, { from: checkpoint.id })).rejects.toMatchObject({
      code: 'capability_unsupported',
    });
  });

  it('that the provider has lost ends the sandbox as lost, and the operation with it', async () => {
    const { id, checkpoint } = await pausedOne();
    await provider.lose(checkpoint.id);
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'lost' });
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'lost', operationId: null });
  });

  it('is not destroyed with what it became when that cannot be looked at for a moment', async () => {
    const { id } = await pausedOne();
    const observe = provider.observe.bind(provider);
    let blind = true;
    Object.assign(provider, {
      observe: async (instance: Parameters<typeof observe>[0]) => {
        if (blind) throw new Error('502');
        return observe(instance);
      },
    });
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'timeout' });
    blind = false;
    world.clock.advance(60_000);
    await world.engine.reconcile();
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'running', evidence: 'running' });
    expect(provider.look(id)).toMatchObject({ files: { '/a': '1' }, counter: 1 });
  });

  it('does not lose the sandbox when the server dies between the provider’s start and our commit', async () => {
    const { id } = await pausedOne();
    const dying = await world.another({
      faults: { pass: (point) => (point === 'resume.start-started' ? death : undefined) },
    });
    dying.resume(caller, id).catch(() => {});
    await expect
      .poll(async () => (await provider.observe({ sandboxId: id, generation: 2 })).is)
      .toBe('running');
    world.clock.advance(60_000);
    const healed = await world.another();
    expect(await healed.get('org', id)).toMatchObject({
      state: 'running',
      generation: 2,
      evidence: 'running',
    });
    expect(provider.look(id)).toMatchObject({ files: { '/a': '1' }, counter: 1 });
    await expect(healed.pause(caller, id)).resolves.toMatchObject({ sandbox: { state: 'paused' } });
  });
});
