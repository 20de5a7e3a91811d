import type { CheckpointId, SandboxId, SessionId, SessionView } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  answered,
  caller,
  ORG,
  output,
  type SessionWorld,
  SPEC,
  sessionWorld,
  testedDatabases,
} from '../testing/session-world.ts';
import { type LedgerEvent, Lineage } from './lineage.ts';

describe('a lineage', () => {
  const sealed = (seq: number, checkpointId: string, type: 'sandbox.paused' | 'checkpoint.sealed') =>
    ({ type, seq, checkpointId, data: { lost: ['processes'] } }) as LedgerEvent;
  const resumed = (seq: number, checkpointId: string, lost: string[] = []) =>
    ({ type: 'sandbox.resumed', seq, checkpointId, data: { source: { checkpointId }, lost } }) as LedgerEvent;
  const after = (endedSeq: number | null, ...lines: LedgerEvent[]) => {
    const lineage = new Lineage(endedSeq);
    for (const line of lines) lineage.take(line);
    return lineage;
  };

  it('holds a turn in checkpoints that were sealed after its end, and in no others (R73)', () => {
    const snapshots = [sealed(5, 'a', 'checkpoint.sealed'), sealed(9, 'b', 'checkpoint.sealed')];
    const held = (endedSeq: number | null) =>
      ['a', 'b', 'older'].filter((id) => after(endedSeq, ...snapshots).holds(id));
    expect([held(3), held(5), held(8), held(9), held(null)]).toEqual([['a', 'b'], ['b'], ['b'], [], []]);
  });

  it('holds a running turn in the checkpoint that the sandbox is paused at (R73)', () => {
    const paused = sealed(5, 'a', 'sandbox.paused');
    expect(after(null, paused).holds('a')).toBe(true);
    expect(after(null, paused, resumed(7, 'a')).holds('a')).toBe(false);
    expect(after(null, paused, resumed(7, 'a')).isIntact).toBe(true);
  });

  it('is broken by a start from an older checkpoint, and intact again after a start from one that holds the turn (R73)', () => {
    const rolledBack = [sealed(5, 'a', 'sandbox.paused'), resumed(7, 'older')];
    expect(after(3, ...rolledBack).isIntact).toBe(false);
    expect(after(3, ...rolledBack, sealed(9, 'b', 'sandbox.paused')).holds('b')).toBe(false);
    expect(after(3, ...rolledBack, resumed(11, 'a')).isIntact).toBe(true);
    expect(after(3, sealed(5, 'a', 'sandbox.paused'), resumed(7, 'a', ['files'])).isIntact).toBe(false);
  });
});

describe.each(testedDatabases)('the files of the last delivered turn on %s', (kind) => {
  let here: SessionWorld;
  let id: SessionId;
  beforeEach(async () => {
    here = await sessionWorld(kind);
    id = (await here.sessions.open(ORG, 'thread-1', SPEC)).id;
    here.program.answer = (message) => [
      output(0, `{"torpor":{"thread":"t-1"}}\necho ${message.input}\n`),
      { is: 'end', exitCode: 0, signal: null },
    ];
  });
  afterEach(() => here.dispose());

  const say = (input: string) => answered(here.sessions, id, input);
  const session = (): Promise<SessionView> => here.sessions.get(ORG, id);
  const sandboxOf = async () => (await session()).sandboxId as SandboxId;
  const pause = async () => {
    here.world.clock.advance(1_000);
    const { checkpoint } = await here.world.engine.pause(caller, await sandboxOf());
    here.world.clock.advance(1_000);
    return checkpoint;
  };
  const kill = async () => {
    const sandboxId = await sandboxOf();
    await here.world.engine.kill(caller, sandboxId);
    return sandboxId;
  };
  const lastHistory = () => here.program.stdin.at(-1)?.message.history;

  it('do not survive in a checkpoint from before that turn: the thread is cleared, and the program gets the history (R73, R74)', async () => {
    await say('one');
    const checkpoint = await pause();
    await say('two');
    const killed = await kill();
    expect(await say('three')).toMatchObject({ state: 'done' });
    expect((await session()).change).toMatchObject({
      did: 'spawned',
      formerSandboxId: killed,
      from: checkpoint.id,
      lost: ['processes', 'files'],
      lostSince: checkpoint.sealedAt,
      threadKept: false,
    });
    const { message } = here.program.stdin.at(-1) ?? {};
    expect(message?.agentThreadId).toBeNull();
    expect(message?.history?.map(({ input }) => input)).toEqual(['one', 'two']);
  });

  it('survive in the checkpoint of the pause after it: the thread continues without the history (R73)', async () => {
    await say('one');
    const checkpoint = await pause();
    await kill();
    await say('two');
    expect((await session()).change).toMatchObject({
      from: checkpoint.id,
      lost: ['processes'],
      lostSince: null,
      threadKept: true,
    });
    expect(here.program.stdin.at(-1)?.message).toMatchObject({ agentThreadId: 't-1', history: null });
  });

  it('do not survive in a snapshot that was taken while the turn was running (R73)', async () => {
    const gate = Promise.withResolvers<void>();
    here.program.fault = (when) => (when === 'listen' ? gate.promise : undefined);
    const turn = await here.sessions.send(caller, id, 'one');
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).state).toBe('answering');
    const { id: from } = (await here.world.engine.snapshot(caller, await sandboxOf(), { name: 'half' }))
      .checkpoint;
    gate.resolve();
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).state).toBe('done');
    here.program.fault = () => {};
    await kill();
    await say('two');
    expect((await session()).change).toMatchObject({ from, lost: ['processes', 'files'], threadKept: false });
    expect(lastHistory()).toHaveLength(1);
  });

  it('survive in the checkpoint of a sandbox that was paused during the turn and never resumed (R73)', async () => {
    const gate = Promise.withResolvers<void>();
    here.program.fault = (when) => (when === 'listen' ? gate.promise : undefined);
    const turn = await here.sessions.send(caller, id, 'one');
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).state).toBe('answering');
    await pause();
    await kill();
    const { session: now } = await here.sessions.getOrSpawn(caller, id);
    expect(now.change).toMatchObject({ lost: ['processes'], threadKept: true });
    gate.resolve();
  });

  it('are checked in the same way when the session is rebound (R73)', async () => {
    await say('one');
    const checkpoint = await pause();
    await say('two');
    const { session: rebound } = await here.sessions.rebind(caller, id, {});
    expect(rebound).toMatchObject({
      agentThreadId: null,
      change: {
        from: checkpoint.id,
        lost: ['processes', 'files'],
        lostSince: checkpoint.sealedAt,
        threadKept: false,
      },
    });
    await say('three');
    expect(lastHistory()?.map(({ input }) => input)).toEqual(['one', 'two']);
  });

  it('are found again when the session is rebound to the sandbox that has them', async () => {
    await say('one');
    const sandboxId = await sandboxOf();
    await here.sessions.rebind(caller, id, {});
    const { session: back } = await here.sessions.rebind(caller, id, { sandboxId });
    expect(back.change).toMatchObject({ did: 'rebound', lost: [], lostSince: null, threadKept: true });
    const other = (await here.world.engine.create(caller, {})).sandbox;
    const { session: elsewhere } = await here.sessions.rebind(caller, id, { sandboxId: other.id });
    expect(elsewhere.change).toMatchObject({ lost: ['processes', 'files'], threadKept: false });
    expect(elsewhere.change?.lostSince).toBe(elsewhere.createdAt);
  });

  it('are not lost when a session without turns is bound to a sandbox', async () => {
    const { id: fresh } = await here.sessions.open(ORG, 'fresh', SPEC);
    const { id: sandboxId } = (await here.world.engine.create(caller, {})).sandbox;
    const { session: bound } = await here.sessions.rebind(caller, fresh, { sandboxId });
    expect(bound.change).toMatchObject({ did: 'rebound', lost: [], lostSince: null });
  });

  it('are lost when the sandbox was rolled back to an earlier checkpoint, and the next turn brings the history (R73, R74)', async () => {
    await say('one');
    const sandboxId = await sandboxOf();
    const { id: checkpointId } = (await here.world.engine.snapshot(caller, sandboxId, { name: 'before' }))
      .checkpoint;
    await say('two');
    await here.world.engine.rollback(caller, sandboxId, { checkpointId: checkpointId as CheckpointId });
    await say('three');
    expect(await session()).toMatchObject({
      sandboxId,
      change: { did: 'used', lost: ['files'], threadKept: false },
    });
    expect(lastHistory()?.map(({ input }) => input)).toEqual(['one', 'two']);
  });

  it('are checked by the session reconciler too, which keeps the older files to start from (R73, R75)', async () => {
    await say('one');
    const checkpoint = await pause();
    await say('two');
    await kill();
    await here.sessions.reconcile();
    expect(await session()).toMatchObject({
      sandboxId: null,
      agentThreadId: null,
      change: { did: 'healed', lost: ['processes', 'files'], lostSince: checkpoint.sealedAt },
    });
    await say('three');
    expect((await session()).change).toMatchObject({
      from: checkpoint.id,
      lost: ['processes', 'files'],
      lostSince: checkpoint.sealedAt,
    });
    expect(lastHistory()).toHaveLength(2);
  });

  it('count as lost for turns from before their end was recorded (R73)', async () => {
    await say('one');
    await here.world.db.transaction((tx) =>
      tx.query('UPDATE session_turns SET claimed_seq = NULL, ended_seq = NULL WHERE session_id = $1', [id]),
    );
    await pause();
    await here.sessions.getOrSpawn(caller, id);
    expect((await session()).change).toMatchObject({ did: 'resumed', lost: [], threadKept: true });
    await pause();
    await kill();
    await here.sessions.getOrSpawn(caller, id);
    expect((await session()).change).toMatchObject({ lost: ['processes'], threadKept: true });
    await here.world.engine.snapshot(caller, await sandboxOf());
    await kill();
    await here.sessions.getOrSpawn(caller, id);
    expect((await session()).change).toMatchObject({ lost: ['processes'], threadKept: true });
  });

  it('do not belong to a thread that the old program names after the session was rebound (R73)', async () => {
    const gate = Promise.withResolvers<void>();
    here.program.fault = (when) => (when === 'listen' ? gate.promise : undefined);
    const turn = await here.sessions.send(caller, id, 'one');
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).state).toBe('answering');
    await here.sessions.rebind(caller, id, {});
    gate.resolve();
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).endedAt).not.toBeNull();
    expect(await session()).toMatchObject({ agentThreadId: null });
    here.program.fault = () => {};
    await say('two');
    expect(lastHistory()).toHaveLength(1);
  });
});
