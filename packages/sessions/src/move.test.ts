import { runtimeWithoutPause } from '@torpor/engine/testing';
import type { SandboxId, SessionId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  answered,
  caller,
  ORG,
  type SessionWorld,
  SPEC,
  sandboxesMade,
  sessionWorld,
  testedDatabases,
} from '../testing/session-world.ts';
import type { Sessions } from './sessions.ts';

describe.each(testedDatabases)('a session on a runtime that is no longer configured, on %s', (kind) => {
  let here: SessionWorld;
  let without: Sessions;
  let id: SessionId;
  const pinned = { ...SPEC, sandbox: { runtime: 'pods' } };
  beforeEach(async () => {
    here = await sessionWorld(kind, { runtimes: ({ store }) => [runtimeWithoutPause({ files: store })] });
    id = (await here.sessions.open(ORG, 'thread-1', pinned)).id;
    const runtimes = new Map([[here.world.runtime.name, here.world.runtime]]);
    without = await here.another({ engine: await here.world.another({ runtimes }) });
  });
  afterEach(() => here.dispose());

  const missing = {
    code: 'capability_unsupported',
    retryable: false,
    message: expect.stringContaining('"pods"'),
    hint: expect.stringContaining('torpor session move'),
  };

  it('returns an error with a hint, and changes nothing (R77)', async () => {
    const { sandbox } = await here.sessions.getOrSpawn(caller, id);
    await expect(without.getOrSpawn(caller, id)).rejects.toMatchObject(missing);
    expect(await without.get(ORG, id)).toMatchObject({ sandboxId: sandbox?.id, error: missing });
    expect(await sandboxesMade(here.world)).toBe(1);
    expect((await here.sessions.getOrSpawn(caller, id)).session).toMatchObject({
      sandboxId: sandbox?.id,
      error: null,
    });
  });

  it('returns the error when it has no sandbox yet', async () => {
    await expect(without.getOrSpawn(caller, id)).rejects.toMatchObject({
      ...missing,
      message: expect.stringMatching(/^Failed to start the agent runtime\. .*"pods"/),
    });
  });

  it('can be moved to another runtime, and says what is lost (R73)', async () => {
    await answered(here.sessions, id, 'one');
    const { sandboxId: left } = await here.sessions.get(ORG, id);
    const { session, sandbox } = await without.rebind(caller, id, { runtime: 'memory' });
    expect(sandbox).toMatchObject({ runtime: 'memory', state: 'running' });
    expect(session).toMatchObject({
      sandbox: { runtime: 'memory' },
      error: null,
      change: {
        why: 'request',
        formerSandboxId: left,
        lost: ['processes', 'files'],
        lostSince: session.createdAt,
        threadKept: false,
      },
    });
    expect(await answered(without, id, 'two')).toMatchObject({ state: 'done' });
    expect(here.program.stdin.at(-1)?.message.history).toHaveLength(1);
    const { items } = await without.wakes(ORG, id, 0, 10);
    expect(items.at(-1)).toMatchObject({ did: 'rebound', message: expect.stringContaining('"memory"') });
  });

  it('refuses a move that is not possible, and stays as it was', async () => {
    const { sandbox } = await here.sessions.getOrSpawn(caller, id);
    await expect(here.sessions.rebind(caller, id, { runtime: 'nowhere' })).rejects.toMatchObject({
      code: 'capability_unsupported',
    });
    const sleeper = await here.sessions.open(ORG, 'sleeper', {
      ...SPEC,
      sandbox: { runtime: 'memory', onIdle: 'pause' },
    });
    const before = await here.sessions.getOrSpawn(caller, sleeper.id);
    await expect(here.sessions.rebind(caller, sleeper.id, { runtime: 'pods' })).rejects.toMatchObject({
      code: 'capability_unsupported',
    });
    expect(await here.sessions.get(ORG, sleeper.id)).toEqual(before.session);
    expect(await here.sessions.get(ORG, id)).toMatchObject({ sandboxId: sandbox?.id, ...pinned });
  });

  it('replaces a plan that was waiting when it is moved', async () => {
    const { sandbox } = await here.sessions.getOrSpawn(caller, id);
    await here.world.engine.kill(caller, sandbox?.id as SandboxId);
    const dying = await here.another({
      atFaultPoint: (point) => (point === 'session.planned' ? Promise.reject(new Error('dead')) : undefined),
    });
    await expect(dying.getOrSpawn(caller, id)).rejects.toMatchObject({ code: 'internal' });
    const { session } = await without.rebind(caller, id, { runtime: 'memory' });
    expect(session).toMatchObject({ sandbox: { runtime: 'memory' }, change: { why: 'request' } });
  });
});
