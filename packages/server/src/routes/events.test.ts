import { setTimeout as delay } from 'node:timers/promises';
import type { EventView, SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { framesOf, type ReadFrame } from '../../testing/event-frames.ts';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: string;
beforeAll(async () => {
  server = await testServer({ settings: { heartbeatMs: 50 } });
  url = await server.listen();
});
afterAll(() => server.dispose());

function follow(path: string, headers: Record<string, string> = {}, signal?: AbortSignal): Promise<Response> {
  return fetch(`${url}${path}`, {
    headers: { accept: 'text/event-stream', authorization: `Bearer ${server.keys.default}`, ...headers },
    ...(signal === undefined ? {} : { signal }),
  });
}

/** The frames up to and including the first event for which `isLast` holds. */
async function until(response: Response, isLast: (event: EventView) => boolean): Promise<ReadFrame[]> {
  const frames: ReadFrame[] = [];
  for await (const frame of framesOf(response)) {
    if (frame.event === undefined) continue;
    frames.push(frame);
    if (isLast(frame.data as EventView)) break;
  }
  return frames;
}

const types = (frames: ReadFrame[]) => frames.map(({ event }) => event);
const pause = (id: SandboxId) => server.ask('POST', `/v1/sandboxes/${id}/pause`);

describe('events', () => {
  it('are listed newest first when asked for, for one sandbox and for all', async () => {
    const id = await server.create();
    await pause(id);
    const read = async (path: string) =>
      (await server.ask('GET', path)).json<{ items: EventView[]; nextCursor: string | null }>();
    const whole = await read(`/v1/sandboxes/${id}/events`);
    const newest = await read(`/v1/sandboxes/${id}/events?order=newest&limit=3`);
    expect(newest.items).toEqual(whole.items.toReversed().slice(0, 3));
    const rest = await read(`/v1/sandboxes/${id}/events?order=newest&cursor=${newest.nextCursor}`);
    expect([...newest.items, ...rest.items]).toEqual(whole.items.toReversed());
    expect(rest.nextCursor).toBeNull();
    expect((await read('/v1/events?order=newest&limit=1')).items).toEqual(newest.items.slice(0, 1));
  });

  it('are listed oldest first, in pages, with their data (R95)', async () => {
    const id = await server.create();
    await pause(id);
    const all: EventView[] = [];
    for (let cursor: string | null = '0'; cursor !== null; ) {
      const page: { items: EventView[]; nextCursor: string | null } = (
        await server.ask('GET', `/v1/sandboxes/${id}/events?limit=2&cursor=${cursor}`)
      ).json();
      all.push(...page.items);
      cursor = page.nextCursor;
    }
    expect(all.map(({ seq }) => seq)).toEqual(all.map((_, index) => index + 1));
    expect(all[0]).toMatchObject({ type: 'sandbox.created', sandboxId: id });
    expect(all.at(-1)).toMatchObject({
      type: 'sandbox.paused',
      state: 'paused',
      data: { reason: 'request' },
    });
  });

  it('of all sandboxes come in the order of their positions', async () => {
    await server.create();
    const { items } = (await server.ask('GET', '/v1/events?limit=1000')).json();
    const positions = items.map(({ position }: EventView) => position);
    expect(positions).toEqual([...positions].sort((a, b) => a - b));
    const after = (await server.ask('GET', `/v1/events?cursor=${positions.at(-2)}`)).json();
    expect(after.items).toEqual([items.at(-1)]);
  });

  it.each(['cursor=-1', 'cursor=x', 'cursor=1e3', 'limit=0', 'from=1'])(
    'refuse the query %s',
    async (query) => {
      const response = await server.ask('GET', `/v1/events?${query}`);
      expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
    },
  );
});

describe('the stream of events', () => {
  it('has all events, then every new event', async () => {
    const id = await server.create();
    const response = await follow(`/v1/sandboxes/${id}/events`);
    expect(response.headers.get('x-request-id')).toMatch(/^req_/);
    const reading = until(response, ({ type }) => type === 'sandbox.killed');
    await pause(id);
    await server.ask('POST', `/v1/sandboxes/${id}/resume`);
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
    const frames = await reading;
    expect(types(frames)).toEqual(
      expect.arrayContaining(['sandbox.created', 'sandbox.paused', 'sandbox.resumed']),
    );
    expect(frames.map((frame) => Number(frame.id))).toEqual(frames.map((_, index) => index + 1));
    expect(frames.at(-1)?.data).toMatchObject({ state: 'killed' });
  });

  it('continues where the client stopped, by seq for one sandbox and by position for all', async () => {
    const id = await server.create();
    await pause(id);
    const { items } = (await server.ask('GET', `/v1/sandboxes/${id}/events`)).json();
    const [last, before] = [items.at(-1), items.at(-2)] as [EventView, EventView];
    const one = await until(
      await follow(`/v1/sandboxes/${id}/events?cursor=0`, { 'last-event-id': String(before.seq) }),
      () => true,
    );
    expect(one).toMatchObject([{ id: String(last.seq), data: last }]);
    const all = await until(
      await follow('/v1/events', { 'last-event-id': String(before.position) }),
      () => true,
    );
    expect(all).toMatchObject([{ id: String(last.position), data: last }]);
  });

  it('refuses an invalid Last-Event-ID', async () => {
    const response = await follow('/v1/events', { 'last-event-id': 'yesterday' });
    expect(response.status).toBe(400);
  });

  it('refuses a cursor beyond the newest event, and names the newest', async () => {
    const id = await server.create();
    const { items } = (await server.ask('GET', `/v1/sandboxes/${id}/events`)).json();
    const { seq, position } = items.at(-1) as EventView;
    for (const [path, newest] of [
      [`/v1/sandboxes/${id}/events`, seq],
      ['/v1/events', position],
    ] as const) {
      const asked = [
        await follow(path, { 'last-event-id': String(newest + 1) }),
        await follow(`${path}?cursor=${newest + 1}`),
        await follow(`${path}?cursor=${newest + 1}`, { accept: 'application/json' }),
      ];
      for (const response of asked) {
        expect([response.status, await response.json()]).toMatchObject([
          400,
          {
            error: {
              code: 'invalid_request',
              message: expect.stringContaining(`The newest is ${newest}`),
              details: { newest },
            },
          },
        ]);
      }
      const page = await follow(`${path}?cursor=${newest}`, { accept: 'application/json' });
      expect(await page.json()).toEqual({ items: [], nextCursor: null });
    }
  });

  it('does not count events of another organisation', async () => {
    const id = await server.create({}, server.keys.other);
    const own = (await server.ask('GET', `/v1/events?limit=1000`)).json().items.at(-1) as EventView;
    const theirs = (await server.ask('GET', `/v1/sandboxes/${id}/events`, { key: server.keys.other })).json();
    const response = await follow('/v1/events', { 'last-event-id': String(theirs.items.at(-1).position) });
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { error: { details: { newest: own.position } } },
    ]);
  });

  it('never misses the last event, whenever it begins (R22)', async () => {
    const readers: Promise<ReadFrame[]>[] = [];
    const id = await server.create();
    const killing = server.ask('DELETE', `/v1/sandboxes/${id}`);
    for (let i = 0; i < 20; i++) {
      readers.push(
        follow(`/v1/sandboxes/${id}/events`).then((r) => until(r, ({ type }) => type === 'sandbox.killed')),
      );
      await delay(i % 3);
    }
    await killing;
    for (const frames of await Promise.all(readers)) expect(types(frames).at(-1)).toBe('sandbox.killed');
  });

  it('sends heartbeats when nothing happens, and ends when the client disconnects', async () => {
    const leaving = new AbortController();
    const { items } = (await server.ask('GET', '/v1/events?limit=1000')).json();
    const response = await follow(`/v1/events?cursor=${items.at(-1).position}`, {}, leaving.signal);
    const comments: string[] = [];
    for await (const { comment } of framesOf(response)) {
      comments.push(comment ?? '');
      if (comments.length === 3) break;
    }
    expect(comments).toEqual(['connected', 'heartbeat', 'heartbeat']);
    leaving.abort();
    while ((await server.ctx.metrics.streams.get()).values[0]?.value !== 0) await delay(10);
  });

  it('ends when the server stops', async () => {
    const other = await testServer();
    const address = await other.listen();
    const response = await fetch(`${address}/v1/events`, {
      headers: { accept: 'text/event-stream', 'x-api-key': other.keys.default },
    });
    const frames = framesOf(response);
    expect(await frames.next()).toMatchObject({ value: { comment: 'connected' } });
    await other.app.stop();
    expect(await frames.next()).toMatchObject({ done: true });
    await other.dispose();
  });
});
