import { ERROR_CODES, factsOf, TorporError } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer, errorReply, REQUEST_ID } from '../testing/api-server.ts';
import { recordedPace } from '../testing/recorded-pace.ts';
import {
  CHECKPOINT_ID,
  checkpointView,
  eventView,
  OPERATION_ID,
  operationView,
  SANDBOX_ID,
  sandboxView,
} from '../testing/views.ts';
import { Torpor } from './client.ts';
import {
  ApiError,
  CheckpointMissingError,
  ERROR_CLASSES,
  InternalError,
  UnreachableError,
} from './errors.ts';

let server: ApiServer;
let torpor: Torpor;
beforeEach(async () => {
  server = await apiServer();
  torpor = new Torpor({ url: `${server.url}/`, apiKey: 'secret', env: {}, pace: recordedPace() });
});
afterEach(() => server.close());

const lastRequest = () => server.requests.at(-1);

describe('a request', () => {
  it('carries the key, and the user for whom a service key acts', async () => {
    server.answer('GET /v1/sandboxes/*', { json: sandboxView() });
    await new Torpor({ url: server.url, apiKey: 'secret', user: 'ada', env: {} }).sandboxes.get(SANDBOX_ID);
    expect(lastRequest()?.headers).toMatchObject({ authorization: 'Bearer secret', 'torpor-user': 'ada' });
  });

  it('uses the address and key of the environment by default', () => {
    expect(new Torpor({ env: { TORPOR_URL: 'http://elsewhere:1/' } }).url).toBe('http://elsewhere:1');
    expect(new Torpor({ env: {} }).url).toBe('http://127.0.0.1:7676');
  });

  it('does not follow a redirect, which would send the key elsewhere', async () => {
    server.answer('GET /v1/sandboxes/*', {
      status: 302,
      headers: { location: `${server.url}/other` },
      text: '',
    });
    await expect(torpor.sandboxes.get(SANDBOX_ID)).rejects.toMatchObject({ status: 302 });
    expect(lastRequest()?.path).toBe(`/v1/sandboxes/${SANDBOX_ID}`);
  });
});

describe('an error', () => {
  it.each(ERROR_CODES)('has its own class for %s', async (code) => {
    const status = factsOf(code).http;
    const about = { sandboxId: SANDBOX_ID, operationId: OPERATION_ID, checkpointId: CHECKPOINT_ID };
    server.answer('POST /v1/sandboxes/*/resume', errorReply(status, code, 'It failed.', about));
    const error = await torpor.sandboxes.resume(SANDBOX_ID).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ERROR_CLASSES[code]);
    expect(error).toBeInstanceOf(TorporError);
    expect((error as Error).name).toBe((ERROR_CLASSES[code] as { name: string }).name);
    expect(error).toMatchObject({ code, status, message: 'It failed.', requestId: REQUEST_ID, ...about });
    expect((error as ApiError).hint).toBe(`Hint for ${code}.`);
  });

  it("is classified by its status when the response is not Torpor's", async () => {
    server.answer('POST /v1/sandboxes/*/pause', { status: 502, text: '<html>bad gateway</html>' });
    const error = await torpor.sandboxes.pause(SANDBOX_ID).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UnreachableError);
    expect(error).toMatchObject({ status: 502, requestId: REQUEST_ID });
  });

  it('of a newer server keeps its message and details', async () => {
    const reply = errorReply(409, 'checkpoint_on_the_moon', 'Far away.', {
      retryable: true,
      retryAfterMs: 7,
    });
    server.answer('POST /v1/sandboxes/*/pause', reply);
    const error = await torpor.sandboxes.pause(SANDBOX_ID).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'conflict', retryable: true, retryAfterMs: 7, message: 'Far away.' });
  });

  it('is distinguished by its class', async () => {
    server.answer('POST /v1/sandboxes/*/resume', errorReply(409, 'checkpoint_missing', 'Gone.'));
    await expect(torpor.sandboxes.resume(SANDBOX_ID)).rejects.toThrow(CheckpointMissingError);
    expect(server.requests.filter(({ path }) => path.endsWith('/resume')).length).toBeGreaterThan(0);
  });

  it('of a resume never causes another resume (R103)', async () => {
    for (const status of [409, 425, 429, 502, 503, 504]) {
      server.answer('POST /v1/sandboxes/*/resume', { status });
      const before = server.requests.length;
      await expect(torpor.sandboxes.resume(SANDBOX_ID)).rejects.toBeInstanceOf(ApiError);
      expect(server.requests.length - before).toBe(1);
    }
  });
});

describe('reads of the typed client', () => {
  const health = {
    status: 'ok',
    version: '1',
    runtime: 'process',
    database: 'ok',
    disk: 'ok',
    uptimeSeconds: 1,
  };
  const reads: [string, string, unknown, (torpor: Torpor) => Promise<unknown>][] = [
    ['health', '/health', health, (t) => t.health()],
    ['get', `/v1/sandboxes/${SANDBOX_ID}`, sandboxView(), (t) => t.sandboxes.get(SANDBOX_ID)],
    ['list', '/v1/sandboxes', { items: [], nextCursor: null }, (t) => t.sandboxes.page()],
    [
      'processes',
      `/v1/sandboxes/${SANDBOX_ID}/processes`,
      { items: [], nextCursor: null },
      (t) => t.sandboxes.processes(SANDBOX_ID),
    ],
    [
      'files',
      `/v1/sandboxes/${SANDBOX_ID}/files`,
      { path: '/', entries: [] },
      (t) => t.sandboxes.files(SANDBOX_ID).list('/'),
    ],
  ];

  it.each(reads)(
    '%s is repeated while the sandbox wakes, before any error is thrown (R54, R61)',
    async (...read) => {
      const [, path, json, call] = read;
      let tries = 0;
      server.answer(`GET ${path}`, () => (++tries < 3 ? { status: 503, text: 'waking' } : { json }));
      await call(torpor);
      expect(tries).toBe(3);
    },
  );

  it.each([
    ['an empty body', { text: '' }],
    ['a body that is not JSON', { text: '<html>' }],
    ['a field that is missing', { json: { ...health, status: undefined } }],
    ['a field of another kind', { json: { ...health, version: 7 } }],
  ])('fail when the response has %s (R62)', async (_, reply) => {
    server.answer('GET /health', reply);
    await expect(torpor.health()).rejects.toThrow(InternalError);
  });

  it('accept additional fields and enum values of a newer server', async () => {
    const newer = { ...sandboxView(), state: 'dreaming', mood: 'good' };
    server.answer('GET /v1/sandboxes/*', { json: newer });
    expect(await torpor.sandboxes.get(SANDBOX_ID)).toEqual(newer);
    server.answer('POST /v1/sandboxes/*/fork', { json: { items: [{ sandbox: newer }] } });
    expect(await torpor.sandboxes.fork(SANDBOX_ID)).toEqual({ items: [{ sandbox: newer }] });
  });
});

describe('a list', () => {
  it('requests page after page, each with the filter', async () => {
    server.answer('GET /v1/sandboxes', ({ query }) => ({
      json: { items: [sandboxView()], nextCursor: query.get('cursor') === null ? 'second' : null },
    }));
    const before = server.requests.length;
    const found = [];
    for await (const one of torpor.sandboxes.list({ state: ['paused', 'lost'], metadata: { app: 'web' } }))
      found.push(one);
    expect(found).toHaveLength(2);
    const queries = server.requests.slice(before).map(({ query }) => Object.fromEntries(query));
    const filter = { state: 'paused,lost', 'metadata.app': 'web' };
    expect(queries).toEqual([filter, { ...filter, cursor: 'second' }]);
  });
});

describe('create', () => {
  it('is repeated under its key when the reply was lost, and creates one sandbox', async () => {
    let tries = 0;
    server.answer('POST /v1/sandboxes', () =>
      ++tries < 3 ? { raw: (response) => response.destroy() } : { status: 201, json: sandboxView() },
    );
    const before = server.requests.length;
    expect(await torpor.sandboxes.create({ name: 'web' })).toMatchObject({ id: SANDBOX_ID });
    const keys = server.requests.slice(before).map(({ headers }) => headers['idempotency-key']);
    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
    expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
  });

  it('uses the idempotency key of its caller', async () => {
    server.answer('POST /v1/sandboxes', { status: 201, json: sandboxView() });
    await torpor.sandboxes.create({}, { idempotencyKey: 'mine' });
    expect(lastRequest()?.headers['idempotency-key']).toBe('mine');
  });
});

describe('each call', () => {
  const reply = { sandbox: sandboxView(), source: { checkpointId: null, kind: 'files' }, lost: [] };
  const calls: [string, unknown, unknown, (torpor: Torpor) => Promise<unknown>][] = [
    [
      `POST /v1/sandboxes/${SANDBOX_ID}/pause`,
      { mode: 'files' },
      {
        sandbox: sandboxView(),
        checkpoint: checkpointView(),
        operation: operationView(),
        warm: false,
        warmReason: null,
      },
      (t) => t.sandboxes.pause(SANDBOX_ID, { mode: 'files' }),
    ],
    [
      `POST /v1/sandboxes/${SANDBOX_ID}/resume`,
      { fallback: ['files'] },
      reply,
      (t) => t.sandboxes.resume(SANDBOX_ID, { fallback: ['files'] }),
    ],
    [
      `POST /v1/sandboxes/${SANDBOX_ID}/checkpoints`,
      { name: 'before' },
      checkpointView(),
      (t) => t.sandboxes.snapshot(SANDBOX_ID, { name: 'before' }),
    ],
    [
      `POST /v1/sandboxes/${SANDBOX_ID}/rollback`,
      { checkpointId: CHECKPOINT_ID },
      reply,
      (t) => t.sandboxes.rollback(SANDBOX_ID, CHECKPOINT_ID),
    ],
    [
      `POST /v1/sandboxes/${SANDBOX_ID}/timeout`,
      { timeoutSeconds: null },
      sandboxView(),
      (t) => t.sandboxes.setTimeout(SANDBOX_ID, null),
    ],
    [
      `POST /v1/sandboxes/${SANDBOX_ID}/network`,
      { mode: 'none' },
      sandboxView(),
      (t) => t.sandboxes.setNetwork(SANDBOX_ID, { mode: 'none' }),
    ],
    [`DELETE /v1/sandboxes/${SANDBOX_ID}`, undefined, sandboxView(), (t) => t.sandboxes.kill(SANDBOX_ID)],
    [
      `POST /v1/checkpoints/${CHECKPOINT_ID}/verify`,
      {},
      checkpointView(),
      (t) => t.checkpoints.verify(CHECKPOINT_ID),
    ],
    [
      `GET /v1/checkpoints/${CHECKPOINT_ID}`,
      undefined,
      checkpointView(),
      (t) => t.checkpoints.get(CHECKPOINT_ID),
    ],
    [`GET /v1/operations/${OPERATION_ID}`, undefined, operationView(), (t) => t.operations.get(OPERATION_ID)],
    [`GET /v1/events`, undefined, { items: [eventView(1)], nextCursor: null }, (t) => t.eventPage()],
  ];

  it.each(calls)('%s', async (route, body, json, call) => {
    server.answer(route, { json });
    expect(await call(torpor)).toEqual(json);
    const { method, path, body: sent } = lastRequest() ?? {};
    expect(`${method} ${path}`).toBe(route);
    expect(sent === '' || sent === undefined ? undefined : JSON.parse(sent)).toEqual(body);
  });
});

describe('fetch into a port', () => {
  it('accepts paths with or without a leading slash, and repeats a read (R51, R63)', async () => {
    let tries = 0;
    server.answer('GET /v1/sandboxes/*/ports/3000/health', () =>
      ++tries % 2 ? { status: 502 } : { text: 'ok' },
    );
    for (const path of ['health', '/health']) {
      const response = await torpor.sandboxes.fetch(SANDBOX_ID, 3000, path, { method: 'get' });
      expect(await response.text()).toBe('ok');
    }
    expect(tries).toBe(4);
  });

  it('returns errors of the app unchanged, and sends a mutation once', async () => {
    server.answer('POST /v1/sandboxes/*/ports/3000/pay', { status: 503, text: 'try later' });
    const before = server.requests.length;
    const response = await torpor.sandboxes.fetch(SANDBOX_ID, 3000, '/pay', { method: 'POST', body: '1' });
    expect([response.status, await response.text()]).toEqual([503, 'try later']);
    expect(server.requests.length - before).toBe(1);
  });

  it('does not wait for the end of a stream', async () => {
    server.answer('GET /v1/sandboxes/*/ports/3000/live', {
      raw: (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('data: 1\n\n');
      },
    });
    const response = await torpor.sandboxes.fetch(SANDBOX_ID, 3000, '/live');
    expect(response.status).toBe(200);
    await response.body?.cancel();
  });
});

describe('files', () => {
  it('are read and written as bytes', async () => {
    const bytes = new Uint8Array([0, 255, 10, 13, 128]);
    server.answer('PUT /v1/sandboxes/*/files', { json: { path: '/a b', name: 'a b' } });
    await torpor.sandboxes.files(SANDBOX_ID).write('/a b', bytes);
    expect(lastRequest()?.query.get('path')).toBe('/a b');
    server.answer('GET /v1/sandboxes/*/files', { raw: (response) => response.end(bytes) });
    expect(await torpor.sandboxes.files(SANDBOX_ID).read('/a b')).toEqual(bytes);
  });
});
