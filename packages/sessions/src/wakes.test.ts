import { type SandboxId, type SessionId, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  answered,
  caller,
  ORG,
  type SessionWorld,
  SPEC,
  sessionWorld,
  testedDatabases,
  unreachable,
} from '../testing/session-world.ts';
import { DEFAULT_SESSION_SETTINGS } from './settings.ts';

const SENTENCE = 'Failed to start the agent runtime.';

describe.each(testedDatabases)('the wakes of a session on %s', (kind) => {
  let here: SessionWorld;
  let id: SessionId;
  beforeEach(async () => {
    here = await sessionWorld(kind);
    id = (await here.sessions.open(ORG, 'thread-1', SPEC)).id;
  });
  afterEach(() => here.dispose());

  const wakes = async () => (await here.sessions.wakes(ORG, id, 0, 100)).items;
  const spawn = () => here.sessions.getOrSpawn(caller, id);
  const messageOf = (asked: Promise<unknown>) =>
    asked.then(
      () => null,
      (thrown: TorporError) => thrown.message,
    );
  const failing = (error: () => TorporError) => {
    here.world.runtime.start = () => Promise.reject(error());
  };

  it('are kept in order, with sandboxes, sources and losses (R105, R106)', async () => {
    await answered(here.sessions, id, 'one');
    const first = (await here.sessions.get(ORG, id)).sandboxId as SandboxId;
    const { checkpoint } = await here.world.engine.pause(caller, first);
    await answered(here.sessions, id, 'two');
    await here.world.engine.kill(caller, first);
    await answered(here.sessions, id, 'three');
    const second = (await here.sessions.get(ORG, id)).sandboxId;
    const { sandbox } = await here.sessions.rebind(caller, id, {});
    expect(await wakes()).toMatchObject([
      {
        ordinal: 1,
        did: 'spawned',
        formerSandboxId: null,
        sandboxId: first,
        source: { kind: 'template' },
        lost: [],
      },
      {
        ordinal: 2,
        did: 'resumed',
        formerSandboxId: first,
        sandboxId: first,
        source: { checkpointId: checkpoint.id, kind: 'memory' },
        lost: [],
        threadKept: true,
      },
      {
        ordinal: 3,
        did: 'replaced',
        why: 'killed',
        formerSandboxId: first,
        sandboxId: second,
        source: { checkpointId: checkpoint.id },
        lost: ['processes', 'files'],
        lostSince: checkpoint.sealedAt,
        threadKept: false,
      },
      { ordinal: 4, did: 'rebound', formerSandboxId: second, sandboxId: sandbox?.id },
    ]);
    const page = await here.sessions.wakes(ORG, id, 1, 2);
    expect(page.items.map(({ ordinal }) => ordinal)).toEqual([2, 3]);
    expect(page.nextCursor).toBe('3');
    await expect(here.sessions.wakes('other', id, 0, 10)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('have one entry for a repeated cause, closed when the session recovers (R106)', async () => {
    const { sandbox } = await spawn();
    await here.world.engine.pause(caller, sandbox?.id as SandboxId);
    const { start } = here.world.runtime;
    failing(unreachable);
    for (let i = 0; i < 3; i++) await expect(spawn()).rejects.toMatchObject({ code: 'unreachable' });
    expect((await wakes()).slice(1)).toMatchObject([
      {
        did: 'failed',
        times: 3,
        sandboxId: sandbox?.id,
        error: { code: 'unreachable', message: 'The provider is away.' },
        recoveredAt: null,
      },
    ]);
    here.world.runtime.start = start;
    await spawn();
    expect((await wakes()).slice(1)).toMatchObject([
      { did: 'failed', times: 3, recoveredAt: expect.any(Number) },
      { did: 'resumed' },
    ]);
  });

  it('are deleted beyond the number in the settings', async () => {
    const sessions = await here.another({ settings: { ...DEFAULT_SESSION_SETTINGS, wakesKept: 3 } });
    const { sandbox } = await sessions.getOrSpawn(caller, id);
    for (let i = 0; i < 5; i++) {
      await here.world.engine.pause(caller, sandbox?.id as SandboxId);
      await sessions.getOrSpawn(caller, id);
    }
    expect((await wakes()).map(({ ordinal }) => ordinal)).toEqual([4, 5, 6]);
  });

  it('survive a restart of the server (R105)', async () => {
    await spawn();
    const restarted = await here.another({ engine: await here.world.another() });
    expect((await restarted.wakes(ORG, id, 0, 10)).items).toHaveLength(1);
  });

  it(`say "${SENTENCE}" once for each cause, and again after a recovery (R79)`, async () => {
    const { start } = here.world.runtime;
    const wontStart = () => new TorporError('conflict', 'It does not start.');
    failing(wontStart);
    expect(await messageOf(spawn())).toBe(`${SENTENCE} It does not start.`);
    expect(await messageOf(spawn())).toBe('It does not start.');
    failing(unreachable);
    expect(await messageOf(spawn())).toBe(`${SENTENCE} The provider is away.`);
    failing(wontStart);
    expect(await messageOf(spawn())).toBe('It does not start.');
    expect(await here.sessions.get(ORG, id)).toMatchObject({
      error: { code: 'conflict', message: 'It does not start.' },
    });
    here.world.runtime.start = start;
    const { sandbox } = await spawn();
    await here.world.engine.kill(caller, sandbox?.id as SandboxId);
    failing(wontStart);
    expect(await messageOf(spawn())).toBe(`${SENTENCE} It does not start.`);
  });

  it('treat messages that differ only in ids and numbers as one cause (R79)', async () => {
    let tries = 0;
    failing(() => new TorporError('conflict', `Try ${++tries} of sbx_aaaaaaaaaaaaaaaaaaa${tries} failed.`));
    expect(await messageOf(spawn())).toContain(SENTENCE);
    expect(await messageOf(spawn())).not.toContain(SENTENCE);
    expect(await wakes()).toMatchObject([{ did: 'failed', times: 2 }]);
  });

  it('do not say the sentence when only the resume failed (R79)', async () => {
    const { sandbox } = await spawn();
    await here.world.engine.pause(caller, sandbox?.id as SandboxId);
    failing(unreachable);
    expect(await messageOf(spawn())).toBe('The provider is away.');
  });

  it('show the sentence in one turn however many messages wait, and keep it there (R79)', async () => {
    failing(unreachable);
    const turns = [];
    for (const input of ['one', 'two', 'three']) {
      turns.push(await here.sessions.send(caller, id, input));
      await here.sessions.deliver();
    }
    for (let i = 0; i < 3; i++) {
      here.world.clock.advance(120_000);
      await here.sessions.deliver();
    }
    const shown = await Promise.all(turns.map((turn) => here.sessions.turn(ORG, id, turn.id)));
    expect(shown.map(({ error }) => error?.message ?? null)).toEqual([
      `${SENTENCE} The provider is away.`,
      null,
      null,
    ]);
    here.world.clock.advance(DEFAULT_SESSION_SETTINGS.giveUpMs);
    await here.sessions.deliver();
    const ended = await Promise.all(turns.map((turn) => here.sessions.turn(ORG, id, turn.id)));
    expect(ended.map(({ state }) => state)).toEqual(['failed', 'failed', 'failed']);
    expect(ended.filter(({ error }) => error?.message.includes(SENTENCE))).toHaveLength(1);
  });
});
