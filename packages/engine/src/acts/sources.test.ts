import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeWorld, type World } from '../../testing/world.ts';
import type { Engine } from '../engine.ts';

const caller = { org: 'org' };

describe('a resume whose checkpoint is at fault', () => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld('sqlite');
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  /** A sandbox that was paused twice, with a different file each time. */
  async function pausedTwice(request = {}) {
    const { id } = (await engine.create(caller, request)).sandbox;
    world.runtime.work(id, '/one', '1');
    const first = await engine.pause(caller, id);
    await engine.resume(caller, id);
    world.runtime.work(id, '/two', '2');
    const second = await engine.pause(caller, id);
    return { id, first: first.checkpoint.id, second: second.checkpoint.id };
  }

  it('reports the checkpoint as missing, corrupt or unreadable, with its id and location (R91)', async () => {
    const { id, second } = await pausedTwice();
    world.store.damage(second, 'corrupt');
    const corrupt = await engine.resume(caller, id).catch((error) => error.toBody());
    expect(corrupt).toMatchObject({ code: 'checkpoint_corrupt', checkpointId: second, retryable: false });
    expect(corrupt.details.location).toContain(second);
    world.store.damage(second, 'missing');
    await expect(engine.resume(caller, id)).rejects.toMatchObject({ code: 'checkpoint_missing' });
    expect(await engine.get('org', id)).toMatchObject({ state: 'paused', checkpointId: second });
    expect(await engine.checkpoint('org', second)).toMatchObject({ state: 'sealed', health: 'damaged' });
  });

  it('uses the previous checkpoint only when the policy allows it, and reports the loss (R93)', async () => {
    const { id, first, second } = await pausedTwice();
    world.store.damage(second, 'missing');
    const resumed = await engine.resume(caller, id, { fallback: ['previous'] });
    expect(resumed).toMatchObject({ source: { checkpointId: first, kind: 'memory' }, lost: ['files'] });
    expect(world.runtime.look(id)?.files).toEqual({ '/etc/motd': 'welcome', '/one': '1' });
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.some((event) => event.data['phase'] === 'falling back')).toBe(true);
  });

  it('starts from the template only when the policy allows it', async () => {
    const { id, first, second } = await pausedTwice();
    world.store.damage(first, 'missing');
    world.store.damage(second, 'missing');
    const resumed = await engine.resume(caller, id, { fallback: ['previous', 'template'] });
    expect(resumed).toMatchObject({ source: { kind: 'template' } });
    expect(resumed.lost).toEqual(expect.arrayContaining(['files', 'processes']));
  });

  it('makes the sandbox lost, with the reason, when no checkpoint of its own is left (R92)', async () => {
    const { id, first, second } = await pausedTwice();
    world.store.damage(first, 'missing');
    world.store.damage(second, 'missing');
    await expect(engine.resume(caller, id)).rejects.toMatchObject({ code: 'lost' });
    const sandbox = await engine.get('org', id);
    expect(sandbox).toMatchObject({ state: 'lost', lost: ['processes', 'files'] });
    expect(sandbox.reason).toContain(second);
    const events = await engine.events({ sandboxId: id, afterSeq: 0 }, 100);
    expect(events.at(-1)).toMatchObject({ type: 'sandbox.lost', state: 'lost' });
    await expect(engine.resume(caller, id)).rejects.toMatchObject({ code: 'lost' });
  });

  it('does not make the sandbox lost while one of its many checkpoints can be used (R92)', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const oldest = (await engine.snapshot(caller, id, { name: 'oldest' })).checkpoint;
    for (let i = 0; i < 65; i++) {
      const { checkpoint } = await engine.snapshot(caller, id);
      world.store.damage(checkpoint.id, 'missing');
    }
    const { checkpoint } = await engine.pause(caller, id);
    world.store.damage(checkpoint.id, 'missing');
    await expect(engine.resume(caller, id)).rejects.toMatchObject({ code: 'checkpoint_missing' });
    expect(await engine.get('org', id)).toMatchObject({ state: 'paused', checkpointId: checkpoint.id });
    expect(await engine.resume(caller, id, { from: oldest.id })).toMatchObject({ resumed: true });
  });

  it('uses the files when only the memory is unusable, and reports it (R93)', async () => {
    const { id, second } = await pausedTwice();
    world.runtime.build = 'build-2';
    const resumed = await engine.resume(caller, id);
    expect(resumed).toMatchObject({ source: { checkpointId: second, kind: 'files' }, lost: ['processes'] });
    expect(world.runtime.look(id)?.files).toMatchObject({ '/one': '1', '/two': '2' });
  });

  it('is refused when the memory is unusable and the policy allows nothing else', async () => {
    const { id } = await pausedTwice({ fallback: [] });
    world.runtime.build = 'build-2';
    await expect(engine.resume(caller, id)).rejects.toMatchObject({ code: 'checkpoint_incompatible' });
    expect((await engine.get('org', id)).state).toBe('paused');
  });

  it('starts from the checkpoint that the caller names', async () => {
    const { id, first } = await pausedTwice();
    const resumed = await engine.resume(caller, id, { from: first });
    expect(resumed).toMatchObject({ source: { checkpointId: first }, sandbox: { checkpointId: first } });
  });
});

describe('a rollback', () => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld('sqlite');
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  it('brings a running sandbox back in place and can itself be undone', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    world.runtime.work(id, '/a', 'old');
    const kept = (await engine.snapshot(caller, id, { name: 'good' })).checkpoint;
    world.runtime.work(id, '/a', 'new');
    await engine.rollback(caller, id, { checkpointId: kept.id });
    expect(world.runtime.look(id)).toMatchObject({ files: { '/a': 'old' }, counter: 1 });
    const { items } = await engine.checkpoints('org', id, 10);
    const before = items.find((checkpoint) => checkpoint.id !== kept.id);
    await engine.rollback(caller, id, { checkpointId: before?.id ?? kept.id });
    expect(world.runtime.look(id)).toMatchObject({ files: { '/a': 'new' }, counter: 2 });
  });

  it('keeps the end of the lifetime that it interrupts', async () => {
    const { id } = (await engine.create(caller, { timeoutSeconds: 60 })).sandbox;
    const kept = (await engine.snapshot(caller, id)).checkpoint;
    const { endsAt } = await engine.resume(caller, id, { timeoutSeconds: 3_600 }).then((r) => r.sandbox);
    const back = await engine.rollback(caller, id, { checkpointId: kept.id });
    expect(back.sandbox.endsAt).toBe(endsAt);
  });

  it('whose checkpoint is deleted during the seal leaves the sandbox paused, and ends', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const kept = (await engine.snapshot(caller, id)).checkpoint;
    await engine.pause(caller, id);
    await engine.resume(caller, id);
    const slow = await world.another({
      faults: {
        pass: async (point) => {
          if (point === 'rollback.seal-frozen') await engine.deleteCheckpoint('org', kept.id);
        },
      },
    });
    await expect(slow.rollback(caller, id, { checkpointId: kept.id })).rejects.toMatchObject({
      code: 'expired',
    });
    expect(await engine.get('org', id)).toMatchObject({ state: 'paused', operationId: null });
    await expect(engine.resume(caller, id)).resolves.toMatchObject({ sandbox: { state: 'running' } });
  });

  it('that fails leaves the sandbox paused with its own checkpoint', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    const kept = (await engine.snapshot(caller, id, { name: 'good' })).checkpoint;
    world.runtime.work(id, '/a', 'new');
    world.store.damage(kept.id, 'missing');
    await expect(engine.rollback(caller, id, { checkpointId: kept.id })).rejects.toMatchObject({
      code: 'checkpoint_missing',
    });
    expect((await engine.get('org', id)).state).toBe('paused');
    await engine.resume(caller, id);
    expect(world.runtime.look(id)).toMatchObject({ files: { '/a': 'new' }, counter: 1 });
  });
});

describe('a fork', () => {
  let world: World;
  let engine: Engine;
  beforeEach(async () => {
    world = await makeWorld('sqlite');
    engine = world.engine;
  });
  afterEach(() => world.dispose());

  it('of a running sandbox diverges from its source, and the source keeps running', async () => {
    const { id } = (await engine.create(caller, { metadata: { a: 'b' } })).sandbox;
    world.runtime.work(id, '/a', '1');
    const forks = (await engine.fork(caller, id, { count: 3 })).forks;
    expect(forks).toHaveLength(3);
    for (const [n, fork] of forks.entries()) {
      if (!('sandbox' in fork)) throw new Error('It failed.');
      expect(fork.sandbox).toMatchObject({ state: 'running', metadata: { a: 'b' } });
      world.runtime.work(fork.sandbox.id, '/a', `fork ${n}`);
      expect(world.runtime.look(fork.sandbox.id)).toMatchObject({ files: { '/a': `fork ${n}` }, counter: 2 });
    }
    expect(world.runtime.look(id)).toMatchObject({ files: { '/a': '1' }, counter: 1 });
  });

  it('of a paused sandbox does not wake it', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    await engine.pause(caller, id);
    const [fork] = (await engine.fork(caller, id)).forks;
    expect(fork).toMatchObject({ sandbox: { state: 'running' } });
    expect((await engine.get('org', id)).state).toBe('paused');
  });

  it('survives the end of its source', async () => {
    const { id } = (await engine.create(caller, {})).sandbox;
    world.runtime.work(id, '/a', '1');
    await engine.pause(caller, id);
    const [fork] = (await engine.fork(caller, id)).forks;
    if (fork === undefined || !('sandbox' in fork)) throw new Error('It failed.');
    await engine.kill(caller, id);
    await engine.reconcile();
    await engine.pause(caller, fork.sandbox.id);
    await engine.resume(caller, fork.sandbox.id);
    expect(world.runtime.look(fork.sandbox.id)).toMatchObject({ files: { '/a': '1' } });
  });
});
