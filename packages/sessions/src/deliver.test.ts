import { settle } from '@torpor/engine/testing';
import type { SessionId, TurnReply } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  caller,
  ORG,
  output,
  type SessionWorld,
  SPEC,
  sandboxesMade,
  sessionWorld,
  testedDatabases,
  unreachable,
} from '../testing/session-world.ts';
import { SESSION_POINTS } from './context.ts';
import type { Sessions } from './sessions.ts';

describe.each(testedDatabases)('a turn on %s', (kind) => {
  let here: SessionWorld;
  let id: SessionId;
  beforeEach(async () => {
    here = await sessionWorld(kind);
    id = (await here.sessions.open(ORG, 'thread-1', SPEC)).id;
  });
  afterEach(() => here.dispose());

  const sent = (input: string, sessions: Sessions = here.sessions) => sessions.send(caller, id, input);
  const ended = async (turn: { readonly id: TurnReply['id'] }, sessions: Sessions = here.sessions) => {
    for await (const _ of sessions.follow(ORG, id, turn.id, -1, new AbortController().signal)) void _;
    return sessions.turn(ORG, id, turn.id);
  };
  const untilPutOff = (turn: { readonly id: TurnReply['id'] }) =>
    expect
      .poll(async () => (await here.sessions.turn(ORG, id, turn.id)).error?.code, { timeout: 10_000 })
      .toBe('unreachable');

  it('is answered, and the answer is stored and streamed', async () => {
    const turn = await sent('hello');
    const seen: string[] = [];
    for await (const event of here.sessions.follow(ORG, id, turn.id, -1, new AbortController().signal)) {
      seen.push('chunk' in event ? event.chunk.text : event.turn.state);
    }
    expect(seen.at(-1)).toBe('done');
    expect(seen).toContain('echo hello\n');
    expect(await here.sessions.turn(ORG, id, turn.id)).toMatchObject({
      state: 'done',
      exitCode: 0,
      output: 'echo hello\n',
      error: null,
    });
  });

  it('is delivered after the turn before it, in the order of sending, once', async () => {
    const inputs = ['one', 'two', 'three', 'four'];
    const turns = [];
    for (const input of inputs) turns.push(await sent(input));
    for (const turn of turns) expect((await ended(turn)).state).toBe('done');
    expect(here.program.stdin.map(({ message }) => message.input)).toEqual(inputs);
    expect(turns.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
  });

  it('is one turn, however often it is sent with one idempotency key', async () => {
    const keyed = { ...caller, idempotencyKey: 'k' };
    const turns = await Promise.all([1, 2, 3].map(() => here.sessions.send(keyed, id, 'hello')));
    expect(new Set(turns.map((turn) => turn.id)).size).toBe(1);
    await expect(here.sessions.send(keyed, id, 'other')).rejects.toMatchObject({
      code: 'idempotency_mismatch',
    });
    for (const turn of turns) await ended(turn);
    expect(here.program.stdin).toHaveLength(1);
  });

  it('waits while the resume fails, is delivered once when it works, and the error is cleared (R106, R107)', async () => {
    await ended(await sent('first'));
    const { sandboxId } = await here.sessions.get(ORG, id);
    await here.world.engine.pause(caller, sandboxId as never);
    const { start } = here.world.runtime;
    here.world.runtime.start = () => Promise.reject(unreachable());
    const turn = await sent('second');
    await untilPutOff(turn);
    expect(await here.sessions.turn(ORG, id, turn.id)).toMatchObject({ state: 'waiting', sandboxId: null });
    expect(await here.sessions.get(ORG, id)).toMatchObject({ error: { code: 'unreachable' } });
    await here.sessions.deliver();
    expect(here.program.stdin).toHaveLength(1);

    here.world.runtime.start = start;
    here.world.clock.advance(120_000);
    await here.sessions.deliver();

    expect(await ended(turn)).toMatchObject({ state: 'done', error: null, output: 'echo second\n' });
    expect(await here.sessions.get(ORG, id)).toMatchObject({ sandboxId, error: null });
    expect(here.program.stdin.map(({ message }) => message.input)).toEqual(['first', 'second']);
    expect(await sandboxesMade(here.world)).toBe(1);
  });

  it.each(SESSION_POINTS)(
    'is neither lost nor delivered twice when the server dies at "%s"',
    async (point) => {
      const death = Promise.withResolvers<void>();
      const died = Promise.withResolvers<void>();
      const dying = await here.another({
        atFaultPoint: (passed) => {
          if (passed !== `session.${point}`) return undefined;
          died.resolve();
          return death.promise;
        },
      });
      const turn = await sent('hello', dying);
      await died.promise;

      const healed = await here.another();
      await healed.deliver();

      expect(await ended(turn, healed)).toMatchObject({ state: 'done', output: 'echo hello\n' });
      expect(here.program.stdin).toHaveLength(1);
      expect(await sandboxesMade(here.world)).toBe(1);
      const { sandboxId } = await healed.get(ORG, id);
      expect(await here.world.engine.get(ORG, sandboxId as never)).toMatchObject({ state: 'running' });
      death.resolve();
    },
  );

  it('whose receipt was lost is sent again, and not given to the program again', async () => {
    let broken = true;
    here.program.fault = (when) => {
      if (when === 'after' && broken) throw unreachable();
    };
    const turn = await sent('hello');
    await untilPutOff(turn);
    expect(await here.sessions.turn(ORG, id, turn.id)).toMatchObject({ state: 'delivering' });
    broken = false;
    here.world.clock.advance(60_000);
    await here.sessions.deliver();
    expect(await ended(turn)).toMatchObject({ state: 'done' });
    expect(here.program.stdin).toHaveLength(1);
  });

  it('that was recorded and perhaps not given to the program is unknown, and not sent again', async () => {
    let broken = true;
    here.program.fault = (when) => {
      if (when === 'recorded' && broken) throw unreachable();
    };
    const turn = await sent('hello');
    await untilPutOff(turn);
    broken = false;
    here.world.clock.advance(60_000);
    await here.sessions.deliver();
    expect(await ended(turn)).toMatchObject({
      state: 'unknown',
      error: { code: 'no_answer', retryable: false },
    });
    expect(here.program.stdin).toHaveLength(0);
    expect(await ended(await sent('next'))).toMatchObject({ state: 'done' });
  });

  it('is unknown when the sandbox was rolled back past its record', async () => {
    await ended(await sent('first'));
    const sandboxId = (await here.sessions.get(ORG, id)).sandboxId as never;
    const { id: checkpointId } = (await here.world.engine.snapshot(caller, sandboxId, { name: 'before' }))
      .checkpoint;
    here.program.fault = (when) => {
      if (when === 'after') throw unreachable();
    };
    const turn = await sent('second');
    await untilPutOff(turn);
    await here.world.engine.rollback(caller, sandboxId, { checkpointId });
    here.program.fault = () => {};
    here.world.clock.advance(60_000);
    await here.sessions.deliver();
    expect(await ended(turn)).toMatchObject({ state: 'unknown' });
    expect(here.program.stdin.map(({ message }) => message.input)).toEqual(['first', 'second']);
  });

  it('whose sandbox was paused meanwhile is still known to its agent', async () => {
    here.program.fault = (when) => {
      if (when === 'after') throw unreachable();
    };
    const turn = await sent('hello');
    await untilPutOff(turn);
    const sandboxId = (await here.sessions.get(ORG, id)).sandboxId as never;
    await here.world.engine.pause(caller, sandboxId);
    here.program.fault = () => {};
    here.world.clock.advance(60_000);
    await here.sessions.deliver();
    expect(await ended(turn)).toMatchObject({ state: 'done' });
    expect(here.program.stdin).toHaveLength(1);
  });

  it('after a loss of files is delivered with the history (R74)', async () => {
    await ended(await sent('first'));
    const sandboxId = (await here.sessions.get(ORG, id)).sandboxId as never;
    here.world.runtime.vanish(sandboxId, true);
    expect(await ended(await sent('second'))).toMatchObject({ state: 'done', output: 'echo second\n' });
    await ended(await sent('third'));
    expect(here.program.stdin.map(({ message }) => message.history)).toEqual([
      null,
      [{ input: 'first', output: 'echo first\n' }],
      null,
    ]);
  });

  it('is not sent to a sandbox that the session has left meanwhile (R73, R74)', async () => {
    await ended(await sent('first'));
    const { sandboxId: left } = await here.sessions.get(ORG, id);
    const { engine } = here.world;
    const look = engine.get.bind(engine);
    engine.get = async (org, sandboxId) => {
      const seen = await look(org, sandboxId);
      engine.get = look;
      await here.sessions.rebind(caller, id, {});
      return seen;
    };
    expect(await ended(await sent('second'))).toMatchObject({ state: 'done' });
    const second = here.program.stdin.at(-1);
    expect(second?.sandboxId).not.toBe(left);
    expect(second?.message.history).toHaveLength(1);
  });

  it('fails when the program that had it is gone, and is not sent again', async () => {
    const gate = Promise.withResolvers<void>();
    here.program.fault = (when) => (when === 'listen' ? gate.promise : undefined);
    const turn = await sent('hello');
    await expect.poll(async () => (await here.sessions.turn(ORG, id, turn.id)).state).toBe('answering');
    here.program.stdin.length = 0;
    gate.resolve();
    expect(await ended(turn)).toMatchObject({ state: 'failed', error: { code: 'no_answer' } });
    expect(here.program.stdin).toHaveLength(0);
  });

  it('of a service ends when the program says so, and the program can name its thread', async () => {
    const service = await here.sessions.open(ORG, 'stays', {
      ...SPEC,
      program: { command: 'x', mode: 'service' },
    });
    here.program.answer = ({ id: turnId }) => [
      output(0, '{"torpor":{"thread":"t-1"}}\nhi\n'),
      output(31, `{"torpor":{"end":"${turnId}"}}\n`),
    ];
    const turn = await here.sessions.send(caller, service.id, 'hello');
    for await (const _ of here.sessions.follow(ORG, service.id, turn.id, -1, new AbortController().signal))
      void _;
    expect(await here.sessions.turn(ORG, service.id, turn.id)).toMatchObject({
      state: 'done',
      output: 'hi\n',
    });
    expect(await here.sessions.get(ORG, service.id)).toMatchObject({ agentThreadId: 't-1' });
  });

  it('that cannot be delivered fails in the end', async () => {
    here.world.runtime.start = () => Promise.reject(unreachable());
    const turn = await sent('hello');
    await untilPutOff(turn);
    here.world.clock.advance(25 * 3_600_000);
    await settle(here.world.clock, here.sessions.deliver());
    expect(await here.sessions.turn(ORG, id, turn.id)).toMatchObject({ state: 'failed' });
  });
});
