import { EventEmitter, once } from 'node:events';
import type { Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import type { Engine } from '@torpor/engine';
import { ManualClock } from '@torpor/engine/testing';
import type { SessionView } from '@torpor/protocol';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { framesOf } from '../../testing/event-frames.ts';
import { type TestServer, testServer } from '../../testing/test-server.ts';
import type { RouteContext } from '../route-context.ts';
import { KeyWatch } from './key-watch.ts';
import { type Frame, sendEvents } from './sse.ts';
import { StreamLimit } from './stream-limit.ts';

let server: TestServer;
let url: string;
beforeAll(async () => {
  server = await testServer({ settings: { streamsPerKey: 2 } });
  url = await server.listen();
});
afterAll(() => server.dispose());

const FRAME_CHARACTERS = 1_000;
const FRAMES = 20_000;
/** Has the fields of both an event and a frame. */
const FRAME = { event: 'x', data: 'x'.repeat(FRAME_CHARACTERS), type: 'x', position: 1 };

/** Frames that are all available at once, like the events of a long ledger. */
function manyFrames() {
  const given = { count: 0, ended: false };
  const frames = async function* (): AsyncGenerator<Frame> {
    try {
      for (; given.count < FRAMES; given.count++) yield FRAME;
    } finally {
      given.ended = true;
    }
  };
  return { given, frames: frames() };
}

/** The response body that a route would send, before anything is read. */
function bodyOf(frames: AsyncGenerator<Frame>, clock = new ManualClock(), resumable = true): Readable {
  const { ctx } = server;
  let body: Readable | undefined;
  const raw = Object.assign(new EventEmitter(), { closed: false });
  const reply = {
    raw,
    header: () => reply,
    send: (given: Readable) => {
      body = given;
      return reply;
    },
  };
  const request = {
    id: 'req_1',
    logFields: {},
    identity: { org: 'default', keyId: 'k', subject: 'ada', service: true },
    deadline: { release() {}, end() {}, signal: new AbortController().signal },
  };
  const everything = {
    ...ctx,
    clock,
    keyWatch: new KeyWatch({ db: ctx.db, clock, everyMs: 1_000_000 }),
    streamLimit: new StreamLimit(10),
  } as unknown as RouteContext;
  sendEvents(everything, request as unknown as FastifyRequest, reply as unknown as FastifyReply, frames, {
    resumable,
  });
  return body as Readable;
}

/** Reads only the first bytes. */
async function beginToRead(body: Readable): Promise<void> {
  await once(body, 'readable');
  body.read();
  await once(body, 'readable');
  for (let i = 0; i < 50; i++) await turn();
}

describe('a stream of events', () => {
  it('lets the event loop run between two batches of a long ledger', async () => {
    const { given, frames } = manyFrames();
    const engine: Engine = Object.assign(Object.create(server.ctx.engine), { follow: () => frames });
    const long = await testServer({ wrapApp: () => ({ engine }) });
    const response = await fetch(`${await long.listen()}/v1/events`, {
      headers: { accept: 'text/event-stream', 'x-api-key': long.keys.default },
    });
    const reading = response.arrayBuffer();
    const counts = [given.count];
    while (!given.ended) {
      await turn();
      counts.push(given.count);
    }
    await reading;
    await long.dispose();
    const most = Math.max(...counts.map((count, i) => count - (counts[i - 1] ?? count)));
    expect(given.count).toBe(FRAMES);
    expect(most * FRAME_CHARACTERS).toBeLessThan(200_000);
  });

  it('reads at most one batch ahead while its client does not read', async () => {
    const { given, frames } = manyFrames();
    const body = bodyOf(frames);
    await beginToRead(body);
    expect(given.count).toBeGreaterThan(0);
    expect(given.count * FRAME_CHARACTERS).toBeLessThan(100_000);
    expect(body.readableLength).toBeLessThan(100_000);
    body.destroy();
  });

  it('is ended with its source when its client does not read for too long', async () => {
    const clock = new ManualClock();
    const { given, frames } = manyFrames();
    const body = bodyOf(frames, clock);
    await beginToRead(body);
    const closed = once(body, 'close');
    clock.advance(server.ctx.settings.stallMs);
    await closed;
    await expect.poll(() => given.ended).toBe(true);
  });

  it('of a command is not ended when its client pauses, because the client could not continue it', async () => {
    const clock = new ManualClock();
    const body = bodyOf(manyFrames().frames, clock, false);
    await beginToRead(body);
    clock.advance(server.ctx.settings.stallMs);
    for (let i = 0; i < 50; i++) await turn();
    expect(body.destroyed).toBe(false);
    body.destroy();
  });
});

describe('the streams of one key', () => {
  const open = (path: string, key: string, signal: AbortSignal, init: RequestInit = {}) =>
    fetch(`${url}${path}`, {
      ...init,
      signal,
      headers: { accept: 'text/event-stream', 'x-api-key': key, ...init.headers },
    });

  it('are limited: one more is refused with 429 and does nothing', async () => {
    const id = await server.create();
    const session = await server.ask('POST', '/v1/sessions', {
      body: { key: 'talk', program: { command: 'cat' } },
    });
    const sessionId = session.json<{ session: SessionView }>().session.id;
    const { default: key, other } = server.keys;
    const [first, rest] = [new AbortController(), new AbortController()];
    await open('/v1/events', key, first.signal);
    await open(`/v1/sandboxes/${id}/events`, key, rest.signal);
    const refused = await open('/v1/events', key, rest.signal);
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({
      error: { code: 'quota_exceeded', message: expect.stringContaining('2 event streams') },
    });
    const turnRefused = await open(`/v1/sessions/${sessionId}/turns`, key, rest.signal, {
      method: 'POST',
      body: JSON.stringify({ input: 'hello' }),
      headers: { 'content-type': 'application/json' },
    });
    expect(turnRefused.status).toBe(429);
    expect((await server.ask('GET', `/v1/sessions/${sessionId}/turns`)).json().items).toEqual([]);
    // The limit does not affect other keys or plain reads.
    expect((await open('/v1/events', other, rest.signal)).status).toBe(200);
    expect((await server.ask('GET', '/v1/events')).statusCode).toBe(200);
    first.abort();
    await expect.poll(async () => (await open('/v1/events', key, rest.signal)).status).toBe(200);
    rest.abort();
  });

  it('no longer count when they have ended or were refused for another reason', async () => {
    const stop = new AbortController();
    for (let i = 0; i < 5; i++) {
      const refused = await open(
        '/v1/sandboxes/sbx_aaaaaaaaaaaaaaaaaaaa/events',
        server.keys.user,
        stop.signal,
      );
      expect(refused.status).toBe(404);
    }
    const good = await open('/v1/events', server.keys.user, stop.signal);
    for await (const { comment } of framesOf(good)) {
      expect(comment).toBe('connected');
      break;
    }
    stop.abort();
  });
});
