import { TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ProviderRuntime } from '../../testing/provider-runtime.ts';
import { makeWorld, type World } from '../../testing/world.ts';

const caller = { org: 'org' };

describe('a single-use checkpoint that a provider keeps', () => {
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
    const { id } = (await world.engine.create(caller, { runtime: 'provider' })).sandbox;
    provider.work(id, '/a', '1');
    const { checkpoint } = await world.engine.pause(caller, id);
    return { id, checkpoint };
  };

  it('is sealed on the provider’s answer, and deleted after the resume', async () => {
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

  it('can be started by its own sandbox only', async () => {
    const { id, checkpoint } = await pausedOne();
    await expect(world.engine.fork(caller, id)).rejects.toMatchObject({ code: 'capability_unsupported' });
    await expect(world.engine.create(caller, { from: checkpoint.id })).rejects.toMatchObject({
      code: 'capability_unsupported',
    });
  });

  it('makes the sandbox lost and ends the operation when the provider has lost it', async () => {
    const { id, checkpoint } = await pausedOne();
    await provider.lose(checkpoint.id);
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'lost' });
    expect(await world.engine.get('org', id)).toMatchObject({ state: 'lost', operationId: null });
  });

  it('is not destroyed with its instance while the instance cannot be observed', async () => {
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

  it('counts as started when the start failed and the instance is observed running', async () => {
    const { id } = await pausedOne();
    const start = provider.start.bind(provider);
    Object.assign(provider, {
      start: async (...order: Parameters<typeof start>) => {
        await start(...order);
        throw new TorporError('unreachable', '502');
      },
    });
    expect(await world.engine.resume(caller, id)).toMatchObject({
      sandbox: { state: 'running', operationId: null },
      source: { kind: 'memory' },
    });
    expect(provider.look(id)).toMatchObject({ files: { '/a': '1' }, counter: 1 });
  });

  it('whose start failed and is observed running names the better source that was skipped', async () => {
    const { id, checkpoint } = await pausedOne();
    provider.build = 'build-2';
    const start = provider.start.bind(provider);
    Object.assign(provider, {
      start: async (...order: Parameters<typeof start>) => {
        await start(...order);
        throw new TorporError('unreachable', '502');
      },
    });
    expect(await world.engine.resume(caller, id)).toMatchObject({
      source: { kind: 'files' },
      skipped: [{ checkpointId: checkpoint.id, part: 'memory', code: 'checkpoint_incompatible' }],
    });
  });

  it('stays with its sandbox when the start failed and the runtime proves it untouched', async () => {
    const { id, checkpoint } = await pausedOne();
    const { start, observe } = provider;
    Object.assign(provider, {
      start: () => Promise.reject(new TorporError('unreachable', '502')),
      observe: async () => ({ is: 'gone', files: false, why: 'it sleeps', untouched: true }),
    });
    await expect(world.engine.resume(caller, id)).rejects.toMatchObject({ code: 'unreachable' });
    Object.assign(provider, { start, observe });
    expect(await world.engine.get('org', id)).toMatchObject({
      state: 'paused',
      operationId: null,
      checkpointId: checkpoint.id,
    });
    expect((await world.engine.resume(caller, id)).sandbox.state).toBe('running');
  });

  it('does not lose the sandbox when the server dies between the provider’s start and the commit', async () => {
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

describe('a provider that has snapshots', () => {
  let world: World;
  let provider: ProviderRuntime;
  beforeEach(async () => {
    provider = new ProviderRuntime({ snapshots: true });
    world = await makeWorld('sqlite', { runtimes: () => [provider] });
  });
  afterEach(() => world.dispose());

  it('forks and snapshots a running sandbox, and a start does not use those checkpoints up', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, { runtime: 'provider' })).sandbox;
    provider.work(id, '/a', '1');
    const snapshot = (await engine.snapshot(caller, id, { name: 'before' })).checkpoint;
    expect(snapshot).toMatchObject({ external: true, replayable: true });
    const forks = (await engine.fork(caller, id, { count: 2 })).forks;
    expect(forks.map((fork) => 'sandbox' in fork && fork.sandbox.state)).toEqual(['running', 'running']);
    provider.work(id, '/a', '2');
    for (let times = 0; times < 2; times++) {
      const { id: copy } = (await engine.create(caller, { from: snapshot.id })).sandbox;
      expect(provider.look(copy)).toMatchObject({ files: { '/a': '1' }, counter: 1 });
    }
    await engine.rollback(caller, id, { checkpointId: snapshot.id });
    expect(provider.look(id)).toMatchObject({ files: { '/a': '1' } });
  });

  it('refuses a fork or a snapshot of a paused sandbox, and says what to do', async () => {
    const { engine } = world;
    const { id } = (await engine.create(caller, { runtime: 'provider' })).sandbox;
    await engine.pause(caller, id);
    const refusal = { code: 'capability_unsupported', hint: expect.stringContaining('Resume') };
    await expect(engine.fork(caller, id)).rejects.toMatchObject(refusal);
    await expect(engine.snapshot(caller, id)).rejects.toMatchObject(refusal);
    expect((await engine.resume(caller, id)).sandbox.state).toBe('running');
    expect((await engine.fork(caller, id)).forks).toHaveLength(1);
  });
});
