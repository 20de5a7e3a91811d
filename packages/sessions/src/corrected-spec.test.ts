import { type SessionSpec, TorporError } from '@torpor/protocol';
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

describe.each(testedDatabases)('a session from whose spec no sandbox can be created, on %s', (kind) => {
  let here: SessionWorld;
  beforeEach(async () => {
    here = await sessionWorld(kind);
  });
  afterEach(() => here.dispose());

  const wrong: readonly [string, SessionSpec['sandbox'], string][] = [
    ['an unknown template', { template: 'nothing' }, 'not_found'],
    ['an unknown runtime', { runtime: 'nothing' }, 'capability_unsupported'],
  ];

  it.each(wrong)('accepts a corrected spec under the same key after %s (R75)', async (_, sandbox, code) => {
    const { id } = await here.sessions.open(ORG, 'thread', { ...SPEC, sandbox });
    await expect(here.sessions.getOrSpawn(caller, id)).rejects.toMatchObject({ code });
    const corrected = { program: { command: 'other', mode: 'turn' as const }, sandbox: {} };
    const opened = await here.sessions.open(ORG, 'thread', corrected);
    expect(opened).toMatchObject({ id, ...corrected, error: null });
    const { session } = await here.sessions.getOrSpawn(caller, id);
    expect(session).toMatchObject({ ...corrected, change: { did: 'spawned', why: 'first' }, error: null });
    expect(await sandboxesMade(here.world)).toBe(1);
  });

  it('delivers a turn that was waiting, once the spec is corrected (R107)', async () => {
    const { id } = await here.sessions.open(ORG, 'thread', { ...SPEC, sandbox: { template: 'nothing' } });
    const turn = await here.sessions.send(caller, id, 'hello');
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).error?.code).toBe('not_found');
    await here.sessions.open(ORG, 'thread', SPEC);
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).state).toBe('done');
    expect(here.program.stdin).toHaveLength(1);
  });

  it('keeps its spec as long as the spec works or fails only transiently', async () => {
    const { id } = await here.sessions.open(ORG, 'thread', SPEC);
    const other = { ...SPEC, sandbox: { idleSeconds: 7 } };
    const { start } = here.world.runtime;
    here.world.runtime.start = () => Promise.reject(new TorporError('capacity', 'It is full.'));
    await expect(here.sessions.getOrSpawn(caller, id)).rejects.toMatchObject({ code: 'capacity' });
    expect(await here.sessions.open(ORG, 'thread', other)).toMatchObject(SPEC);
    here.world.runtime.start = start;
    await answered(here.sessions, id, 'hello');
    expect(await here.sessions.open(ORG, 'thread', other)).toMatchObject(SPEC);
  });
});
