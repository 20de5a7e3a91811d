import { randomBytes } from 'node:crypto';
import { makeId, type SandboxId, type SessionId } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  caller,
  ORG,
  type SessionWorld,
  SPEC,
  sandboxesMade,
  sessionWorld,
  testedDatabases,
} from '../testing/session-world.ts';
import { DEFAULT_SESSION_SETTINGS } from './settings.ts';

describe.each(testedDatabases)('the session reconciler on %s', (kind) => {
  let here: SessionWorld;
  beforeEach(async () => {
    here = await sessionWorld(kind);
  });
  afterEach(() => here.dispose());

  const bound = async (key: string) => {
    const { id } = await here.sessions.open(ORG, key, SPEC);
    const { sandbox } = await here.sessions.getOrSpawn(caller, id);
    return { id, sandboxId: sandbox?.id as SandboxId };
  };
  /** Like a database that was copied without the sandboxes. */
  const stranded = async (count: number) => {
    const ids: SessionId[] = [];
    for (let i = 0; i < count; i++) ids.push((await here.sessions.open(ORG, `old-${i}`, SPEC)).id);
    await here.world.db.transaction(async (tx) => {
      for (const id of ids) {
        const gone = makeId('sbx', randomBytes);
        await tx.query('UPDATE sessions SET sandbox_id = $2, agent_thread_id = $3 WHERE id = $1', [
          id,
          gone,
          'old',
        ]);
      }
    });
    return ids;
  };

  it('unbinds dead sandboxes in bounded rounds, and clears their threads (R75)', async () => {
    const ids = await stranded(12);
    const sessions = await here.another({ settings: { ...DEFAULT_SESSION_SETTINGS, healedAtOnce: 5 } });
    expect(await sessions.healing()).toMatchObject({ due: 12, healed: 0, perRound: 5 });
    const left: number[] = [];
    for (let rounds = 0; rounds < 3; rounds++) {
      await sessions.reconcile();
      left.push((await sessions.healing()).due);
    }
    expect(left).toEqual([7, 2, 0]);
    expect(await sandboxesMade(here.world)).toBe(0);
    expect(await sessions.get(ORG, ids[0] as SessionId)).toMatchObject({
      sandboxId: null,
      agentThreadId: null,
      change: { did: 'healed', why: 'not_found', threadKept: false },
    });
    const { session } = await sessions.getOrSpawn(caller, ids[0] as SessionId);
    expect(session.change).toMatchObject({ did: 'spawned', why: 'not_found' });
  });

  it('is not stopped by one failing row (R81)', async () => {
    const [bad] = await stranded(5);
    const { engine } = here.world;
    const badSandbox = (await here.sessions.get(ORG, bad as SessionId)).sandboxId;
    const look = engine.get.bind(engine);
    engine.get = (org, id) => (id === badSandbox ? Promise.reject(new Error('a bad row')) : look(org, id));
    await here.sessions.reconcile();
    expect(await here.sessions.healing()).toMatchObject({ due: 1, healed: 4, failed: 1 });
    engine.get = look;
    await here.sessions.reconcile();
    expect(await here.sessions.healing()).toMatchObject({ due: 0 });
  });

  it('keeps the thread when the files of the last turn exist', async () => {
    const { id, sandboxId } = await bound('kept');
    await here.world.db.transaction((tx) =>
      tx.query('UPDATE sessions SET agent_thread_id = $2 WHERE id = $1', [id, 't']),
    );
    await here.world.engine.snapshot(caller, sandboxId, { name: 'kept' });
    await here.world.engine.kill(caller, sandboxId);
    await here.sessions.reconcile();
    expect(await here.sessions.get(ORG, id)).toMatchObject({ sandboxId: null, agentThreadId: 't' });
    const { session } = await here.sessions.getOrSpawn(caller, id);
    expect(session).toMatchObject({ agentThreadId: 't', change: { from: expect.stringMatching(/^ckpt_/) } });
  });

  it('finds paused sandboxes that cannot be started any more, and does not kill them', async () => {
    const well = await bound('well');
    const { id, sandboxId } = await bound('ill');
    await here.world.engine.pause(caller, well.sandboxId);
    const { checkpoint } = await here.world.engine.pause(caller, sandboxId);
    await here.world.store.remove(checkpoint.id);
    await here.sessions.reconcile();
    expect(await here.sessions.get(ORG, id)).toMatchObject({ sandboxId: null, change: { did: 'healed' } });
    expect(await here.sessions.get(ORG, well.id)).toMatchObject({ sandboxId: well.sandboxId });
    const health = async (of: SandboxId) => (await here.world.engine.get(ORG, of)).checkpointHealth?.health;
    expect([await health(sandboxId), await health(well.sandboxId)]).toEqual(['missing', 'ok']);
    const made = await sandboxesMade(here.world);
    const { session } = await here.sessions.getOrSpawn(caller, id);
    expect(session.change).toMatchObject({ did: 'spawned', why: 'checkpoint_missing', from: null });
    expect(await sandboxesMade(here.world)).toBe(made + 1);
    await here.sessions.reconcile();
    expect(await here.world.engine.get(ORG, sandboxId)).toMatchObject({ state: 'paused' });
  });

  it('finishes a plan that a crash interrupted, and kills a sandbox that is not needed', async () => {
    const { id } = await here.sessions.open(ORG, 'thread', SPEC);
    const ended = await here.sessions.open(ORG, 'ended', SPEC);
    const death = Promise.withResolvers<void>();
    const died: (() => void)[] = [];
    const dying = await here.another({
      atFaultPoint: (point) => {
        if (point !== 'session.spawned') return undefined;
        died.shift()?.();
        return death.promise;
      },
    });
    for (const one of [id, ended.id]) {
      const dead = new Promise<void>((resolve) => died.push(resolve));
      dying.getOrSpawn(caller, one).catch(() => {});
      await dead;
    }
    await here.sessions.end(ORG, ended.id);

    here.world.clock.advance(DEFAULT_SESSION_SETTINGS.spawnMs);
    await here.sessions.reconcile();

    const { sandboxId } = await here.sessions.get(ORG, id);
    expect(sandboxId).not.toBeNull();
    expect(await sandboxesMade(here.world)).toBe(2);
    const running = await here.world.engine.list({ org: ORG, states: ['running'] }, '', 10);
    expect(running.items.map((sandbox) => sandbox.id)).toEqual([sandboxId]);
    death.resolve();
  });

  it('tries to kill a replaced sandbox until it is killed', async () => {
    const { id, sandboxId } = await bound('thread');
    await here.world.engine.snapshot(caller, sandboxId);
    await here.world.engine.pause(caller, sandboxId);
    const { start, destroy } = here.world.runtime;
    here.world.runtime.start = async (instance, ...rest) =>
      instance.sandboxId === sandboxId
        ? { mode: 'files', lost: [] }
        : start.call(here.world.runtime, instance, ...rest);
    await here.sessions.getOrSpawn(caller, id);
    here.world.runtime.destroy = () => Promise.reject(new Error('not now'));
    await here.sessions.reconcile();
    expect(await here.sessions.healing()).toMatchObject({ leftovers: 1 });
    here.world.runtime.destroy = destroy;
    await here.world.engine.reconcile();
    await here.sessions.reconcile();
    expect(await here.sessions.healing()).toMatchObject({ leftovers: 0 });
    expect(await here.world.engine.get(ORG, sandboxId)).toMatchObject({ state: 'killed' });
  });
});
