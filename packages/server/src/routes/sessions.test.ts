import { randomBytes } from 'node:crypto';
import {
  type CheckpointView,
  makeId,
  type SessionId,
  type SessionView,
  type SessionWake,
  type TurnReply,
} from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

const SSE = { accept: 'text/event-stream' };

describe('/v1/sessions', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await testServer({ sessionRounds: true });
  });
  afterAll(() => server.dispose());

  const open = async (key: string, program: object, more: object = {}) => {
    const reply = await server.ask('POST', '/v1/sessions', { body: { key, program, ...more } });
    expect(reply.statusCode, reply.body).toBe(200);
    return reply.json<{ session: SessionView; sandbox: { id: string; state: string } | null }>();
  };
  /** Follows the stream to its end and returns the turn. */
  const say = async (id: SessionId, input: string, headers: Record<string, string> = {}) => {
    const sent = await server.ask('POST', `/v1/sessions/${id}/turns`, {
      body: { input },
      headers: { ...SSE, ...headers },
    });
    expect(sent.statusCode, sent.body).toBe(201);
    const frames = sent.body.split('\n\n').filter((frame) => frame.includes('data: '));
    const last = JSON.parse(frames.at(-1)?.split('data: ')[1] ?? '{}') as TurnReply;
    const turn = await server.ask('GET', `/v1/sessions/${id}/turns/${last.id}`);
    return { frames, turn: turn.json<TurnReply>() };
  };

  it('runs a command for each turn, and streams and stores its output', async () => {
    const { session, sandbox } = await open('commands', {
      command: 'cat; echo "in $TORPOR_SESSION" >&2; exit 3',
    });
    expect(sandbox).toMatchObject({ state: 'running' });
    const { frames, turn } = await say(session.id, 'hello');
    expect(frames.some((frame) => frame.includes('event: stdout') && frame.includes('"hello"'))).toBe(true);
    expect(frames.some((frame) => frame.includes('event: stderr') && frame.includes('in commands'))).toBe(
      true,
    );
    expect(turn).toMatchObject({ state: 'failed', exitCode: 3, output: 'hello', error: null });
    const page = await server.ask('GET', `/v1/sessions/${session.id}/turns`);
    expect(page.json()).toMatchObject({ items: [{ seq: 1, input: 'hello' }], nextCursor: null });
  });

  it('stores a turn once per idempotency key', async () => {
    const { session } = await open('once', { command: 'cat >> log; cat log' }, { spawn: false });
    expect(session.sandboxId).toBeNull();
    const key = { 'idempotency-key': 'k1' };
    const first = await say(session.id, 'x', key);
    const second = await say(session.id, 'x', key);
    expect(second.turn).toEqual(first.turn);
    expect(first.turn.output).toBe('x');
    const other = await server.ask('POST', `/v1/sessions/${session.id}/turns`, {
      body: { input: 'y' },
      headers: key,
    });
    expect(errorIn(other).code).toBe('idempotency_mismatch');
  });

  it('continues after the sandbox was paused, and after it died', async () => {
    const { session, sandbox } = await open('sleeps', { command: 'cat >> log; cat log' });
    await say(session.id, 'a');
    await server.ask('POST', `/v1/sandboxes/${sandbox?.id}/pause`, { body: {} });
    expect((await say(session.id, 'b')).turn).toMatchObject({ state: 'done', output: 'ab' });
    await server.ask('DELETE', `/v1/sandboxes/${sandbox?.id}`);
    const again = await say(session.id, 'c');
    expect(again.turn).toMatchObject({ state: 'done', output: 'c' });
    const now = (await server.ask('GET', `/v1/sessions/${session.id}`)).json<SessionView>();
    expect(now).toMatchObject({
      change: { did: 'spawned', formerSandboxId: sandbox?.id },
      error: null,
    });
  });

  it('lists every wake with its source, what was lost and since when (R73, R105)', async () => {
    const { session, sandbox } = await open('timeline', { command: 'cat >> log; cat log' });
    await say(session.id, 'a');
    const paused = await server.ask('POST', `/v1/sandboxes/${sandbox?.id}/pause`, { body: {} });
    const { checkpoint } = paused.json<{ checkpoint: CheckpointView }>();
    await say(session.id, 'b');
    await server.ask('DELETE', `/v1/sandboxes/${sandbox?.id}`);
    await open('timeline', { command: 'cat >> log; cat log' });
    const page = await server.ask('GET', `/v1/sessions/${session.id}/wakes?limit=2`);
    expect(page.statusCode, page.body).toBe(200);
    const { items, nextCursor } = page.json<{ items: SessionWake[]; nextCursor: string }>();
    expect(items.map(({ did }) => did)).toEqual(['spawned', 'resumed']);
    const rest = await server.ask('GET', `/v1/sessions/${session.id}/wakes?cursor=${nextCursor}`);
    expect(rest.json()).toMatchObject({
      items: [
        {
          ordinal: 3,
          did: 'replaced',
          formerSandboxId: sandbox?.id,
          source: { checkpointId: checkpoint.id },
          lost: ['processes', 'files'],
          lostSince: checkpoint.sealedAt,
          threadKept: false,
        },
      ],
      nextCursor: null,
    });
    const now = (await server.ask('GET', `/v1/sessions/${session.id}`)).json<SessionView>();
    expect(now.change).toMatchObject({ lost: ['processes', 'files'], lostSince: checkpoint.sealedAt });
    const bad = await server.ask('GET', `/v1/sessions/${session.id}/wakes?cursor=x`);
    expect(errorIn(bad).code).toBe('invalid_request');
  });

  it('accepts a corrected spec under the same key and the same Idempotency-Key (R75)', async () => {
    const ask = (template: string) =>
      server.ask('POST', '/v1/sessions', {
        body: { key: 'corrected', program: { command: 'cat' }, sandbox: { template } },
        headers: { 'idempotency-key': 'corrected' },
      });
    expect(errorIn(await ask('nothing'))).toMatchObject({
      code: 'not_found',
      message: expect.stringMatching(/^Failed to start the agent runtime\. /),
    });
    expect(errorIn(await ask('nothing')).message).not.toContain('Failed to start');
    const made = await ask('base');
    expect(made.statusCode, made.body).toBe(200);
    expect(made.json()).toMatchObject({ session: { sandbox: { template: 'base' }, error: null } });
  });

  it('refuses to move to an unknown runtime, or to a sandbox and a runtime at once', async () => {
    const { session } = await open('moves', { command: 'cat' });
    const rebind = (body: object) => server.ask('POST', `/v1/sessions/${session.id}/rebind`, { body });
    const nowhere = errorIn(await rebind({ runtime: 'nowhere' }));
    expect(nowhere).toMatchObject({
      code: 'capability_unsupported',
      hint: expect.stringContaining('torpor session move moves --runtime'),
    });
    const both = await rebind({ runtime: 'memory', sandboxId: session.sandboxId });
    expect(errorIn(both).code).toBe('invalid_request');
    const now = (await server.ask('GET', `/v1/sessions/${session.id}`)).json<SessionView>();
    expect(now).toEqual(session);
  });

  it('can be bound to another sandbox, and ended', async () => {
    const { session, sandbox } = await open('ends', { command: 'cat' });
    const bound = await server.ask('POST', `/v1/sessions/${session.id}/rebind`, { body: {} });
    expect(bound.json<{ sandbox: { id: string } }>().sandbox.id).not.toBe(sandbox?.id);
    const ended = await server.ask('DELETE', `/v1/sessions/${session.id}`);
    expect(ended.json()).toMatchObject({ endedAt: expect.any(Number) });
    const late = await server.ask('POST', `/v1/sessions/${session.id}/turns`, { body: { input: 'x' } });
    expect(errorIn(late).code).toBe('conflict');
  });

  it('belongs to its organisation (R104)', async () => {
    const { session } = await open('mine', { command: 'cat' }, { spawn: false });
    for (const path of ['', '/turns', '/wakes', `/turns/${makeId('turn', randomBytes)}`]) {
      const answer = await server.ask('GET', `/v1/sessions/${session.id}${path}`, { key: server.keys.other });
      expect(answer.statusCode).toBe(404);
    }
    const list = await server.ask('GET', '/v1/sessions', { key: server.keys.other });
    expect(list.json()).toEqual({ items: [], nextCursor: null });
    const found = await server.ask('GET', '/v1/sessions?key=mine');
    expect(found.json()).toMatchObject({ items: [{ id: session.id }] });
  });

  it('reports dead sessions to service keys only', async () => {
    const healing = await server.ask('GET', '/v1/admin/session-healing');
    expect(healing.json()).toMatchObject({ due: expect.any(Number), perRound: 100 });
    const user = await server.ask('GET', '/v1/admin/session-healing', { key: server.keys.user });
    expect(errorIn(user).code).toBe('forbidden');
  });
});
