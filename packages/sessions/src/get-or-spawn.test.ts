import { runtimeWithoutPause } from '@torpor/engine/testing';
import { type SessionId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  caller,
  ORG,
  type SessionWorld,
  SPEC,
  sandboxesMade,
  sessionWorld,
  testedDatabases,
  unreachable,
} from '../testing/session-world.ts';
import { setThread } from './session.ts';

describe.each(testedDatabases)('getOrSpawn on %s', (kind) => {
  let here: SessionWorld;
  let id: SessionId;
  beforeEach(async () => {
    here = await sessionWorld(kind, { runtimes: ({ store }) => [runtimeWithoutPause({ files: store })] });
    id = (await here.sessions.open(ORG, 'thread-1', SPEC)).id;
  });
  afterEach(() => here.dispose());

  const spawn = () => here.sessions.getOrSpawn(caller, id);
  const withThread = async () => {
    const { sandbox } = await spawn();
    if (sandbox === null) throw new Error('There is no sandbox.');
    await here.world.db.transaction((tx) => setThread(tx, id, sandbox.id, 'thread-of-agent'));
    return sandbox.id;
  };

  it('creates a sandbox for a new session, and finds it again by the key', async () => {
    const { session, sandbox } = await spawn();
    expect(session).toMatchObject({
      sandboxId: sandbox?.id,
      change: { did: 'spawned', why: 'first', lost: [] },
    });
    expect((await here.sessions.open(ORG, 'thread-1', SPEC)).id).toBe(id);
    expect((await spawn()).sandbox?.id).toBe(sandbox?.id);
    await expect(here.sessions.get('other', id)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('resumes the same sandbox, with the thread of its program (R71)', async () => {
    const sandboxId = await withThread();
    await here.world.engine.pause(caller, sandboxId);
    const { session, sandbox } = await spawn();
    expect(sandbox).toMatchObject({ id: sandboxId, state: 'running' });
    expect(session).toMatchObject({ agentThreadId: 'thread-of-agent', change: { did: 'resumed', lost: [] } });
  });

  it('creates one sandbox for twenty concurrent calls on two servers (R80)', async () => {
    const engine = await here.world.another();
    const second = await here.another({ engine });
    const asked = await Promise.all(
      Array.from({ length: 20 }, (_, i) => (i % 2 === 0 ? here.sessions : second).getOrSpawn(caller, id)),
    );
    expect(new Set(asked.map(({ sandbox }) => sandbox?.id)).size).toBe(1);
    expect(await sandboxesMade(here.world)).toBe(1);
  });

  it('creates one sandbox for twenty concurrent calls that find the old one dead', async () => {
    const sandboxId = await withThread();
    await here.world.engine.kill(caller, sandboxId);
    const asked = await Promise.all(Array.from({ length: 20 }, () => spawn()));
    expect(new Set(asked.map(({ sandbox }) => sandbox?.id)).size).toBe(1);
    expect(await sandboxesMade(here.world)).toBe(2);
  });

  it('replaces a lost sandbox from the template, and clears its thread (R72, R73)', async () => {
    const sandboxId = await withThread();
    here.world.runtime.vanish(sandboxId, true);
    const { session, sandbox } = await spawn();
    expect(sandbox?.id).not.toBe(sandboxId);
    expect(session).toMatchObject({
      agentThreadId: null,
      change: { did: 'spawned', why: 'lost', formerSandboxId: sandboxId, lost: ['processes', 'files'] },
    });
  });

  it('restarts a sandbox whose processes died from its files, and keeps the thread', async () => {
    const sandboxId = await withThread();
    here.world.runtime.work(sandboxId, '/note', 'kept');
    here.world.runtime.vanish(sandboxId, false);
    const { session, sandbox } = await spawn();
    expect(sandbox?.id).toBe(sandboxId);
    expect(session).toMatchObject({ agentThreadId: 'thread-of-agent', change: { did: 'resumed' } });
    expect(here.world.runtime.look(sandboxId)?.files['/note']).toBe('kept');
  });

  it('creates a sandbox from the last files of a killed one, and keeps the thread', async () => {
    const sandboxId = await withThread();
    here.world.runtime.work(sandboxId, '/note', 'kept');
    const { id: from } = (await here.world.engine.snapshot(caller, sandboxId, { name: 'before' })).checkpoint;
    await here.world.engine.kill(caller, sandboxId);
    const { session, sandbox } = await spawn();
    expect(session).toMatchObject({ agentThreadId: 'thread-of-agent', change: { why: 'killed', from } });
    expect(sandbox && here.world.runtime.look(sandbox.id)?.files['/note']).toBe('kept');
  });

  it('changes nothing when the platform does not answer, records the error, and clears it afterwards (R77, R106)', async () => {
    const sandboxId = await withThread();
    await here.world.engine.pause(caller, sandboxId);
    const { start } = here.world.runtime;
    here.world.runtime.start = () => Promise.reject(unreachable());
    await expect(spawn()).rejects.toMatchObject({ code: 'unreachable', message: 'The provider is away.' });
    expect(await here.sessions.get(ORG, id)).toMatchObject({
      sandboxId,
      agentThreadId: 'thread-of-agent',
      error: { code: 'unreachable', message: 'The provider is away.' },
    });
    here.world.runtime.start = start;
    expect((await spawn()).session).toMatchObject({ sandboxId, error: null });
    expect(await here.sessions.get(ORG, id)).toMatchObject({ error: null });
    expect(await sandboxesMade(here.world)).toBe(1);
  });

  it('notices a resume without effect, and creates a sandbox from the files (R70, R72)', async () => {
    const sandboxId = await withThread();
    here.world.runtime.work(sandboxId, '/note', 'kept');
    await here.world.engine.pause(caller, sandboxId);
    const { start } = here.world.runtime;
    here.world.runtime.start = async (instance, ...rest) =>
      instance.sandboxId === sandboxId
        ? { mode: 'memory', lost: [] }
        : start.call(here.world.runtime, instance, ...rest);
    const { session, sandbox } = await spawn();
    expect(sandbox?.id).not.toBe(sandboxId);
    expect(session).toMatchObject({ agentThreadId: 'thread-of-agent', change: { why: 'unreachable' } });
    expect(sandbox && here.world.runtime.look(sandbox.id)?.files['/note']).toBe('kept');
    await here.sessions.reconcile();
    expect(await here.world.engine.get(ORG, sandboxId)).toMatchObject({ state: 'killed' });
  });

  it('returns the error when nothing can be started, and tries once for each call (R79)', async () => {
    let tries = 0;
    here.world.runtime.start = () => {
      tries++;
      return Promise.reject(new TorporError('conflict', 'It does not start.'));
    };
    await expect(spawn()).rejects.toMatchObject({
      code: 'conflict',
      message: 'Failed to start the agent runtime. It does not start.',
    });
    expect(tries).toBe(1);
    await expect(spawn()).rejects.toMatchObject({ code: 'conflict', message: 'It does not start.' });
    expect(tries).toBe(2);
  });

  it('never records a sandbox as paused that cannot be paused: it is kept or killed, as configured (R67, R68)', async () => {
    const on = (key: string, onIdle?: 'pause' | 'kill') =>
      here.sessions.open(ORG, key, {
        ...SPEC,
        sandbox: { runtime: 'pods', idleSeconds: 1, ...(onIdle && { onIdle }) },
      });
    const [stays, stops, sleeps] = [
      await on('stays'),
      await on('stops', 'kill'),
      await on('sleeps', 'pause'),
    ];
    const kept = await here.sessions.getOrSpawn(caller, stays.id);
    const stopped = await here.sessions.getOrSpawn(caller, stops.id);
    await expect(here.sessions.getOrSpawn(caller, sleeps.id)).rejects.toMatchObject({
      code: 'capability_unsupported',
    });
    here.world.clock.advance(60_000);
    await here.world.engine.sweep();
    await here.world.engine.sweep();
    const stateOf = async (sandbox: typeof kept.sandbox) =>
      sandbox && (await here.world.engine.get(ORG, sandbox.id)).state;
    expect(await stateOf(kept.sandbox)).toBe('running');
    expect(await stateOf(stopped.sandbox)).toBe('killed');
    const paused = await here.world.engine.list({ org: ORG, states: ['paused'] }, '', 10);
    expect(paused.items).toEqual([]);
    const again = await here.sessions.getOrSpawn(caller, stops.id);
    expect(again.session.change).toMatchObject({ did: 'spawned', why: 'killed' });
  });

  it('binds a new or a named sandbox on request, and kills the sandbox at the end', async () => {
    const sandboxId = await withThread();
    const { session, sandbox } = await here.sessions.rebind(caller, id, {});
    expect(sandbox?.id).not.toBe(sandboxId);
    expect(session.change).toMatchObject({ why: 'request', formerSandboxId: sandboxId });
    const back = await here.sessions.rebind(caller, id, { sandboxId });
    expect(back.sandbox?.id).toBe(sandboxId);
    expect(await here.sessions.end(ORG, id)).toMatchObject({ endedAt: expect.any(Number) });
    expect(await here.world.engine.get(ORG, sandboxId)).toMatchObject({ state: 'killed' });
    await expect(spawn()).rejects.toMatchObject({ code: 'conflict' });
    expect((await here.sessions.open(ORG, 'thread-1', SPEC)).id).not.toBe(id);
  });
});
