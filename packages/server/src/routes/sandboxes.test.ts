import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

describe('a sandbox', () => {
  it('is created, shown in every state, paused, resumed and killed (R96)', async () => {
    const created = await server.ask('POST', '/v1/sandboxes', {
      body: { name: 'one', services: [{ name: 'web', command: 'serve', port: 3000 }] },
    });
    expect(created.statusCode).toBe(201);
    const { id } = created.json();
    expect(created.json()).toMatchObject({
      state: 'running',
      name: 'one',
      urls: {},
    });

    const paused = await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    expect(paused.statusCode).toBe(200);
    expect(paused.json()).toMatchObject({
      sandbox: { state: 'paused' },
      checkpoint: { state: 'sealed' },
      operation: { kind: 'pause', outcome: 'succeeded' },
    });
    const again = await server.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {} });
    expect(again.json()).toMatchObject({ checkpoint: { id: paused.json().checkpoint.id } });
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json()).toMatchObject({ state: 'paused' });

    const bare = id.slice(4);
    const resumed = await server.ask('POST', `/v1/sandboxes/${bare}/resume`, {
      body: { timeoutSeconds: 60 },
    });
    expect(resumed.json()).toMatchObject({
      sandbox: { id, state: 'running' },
      source: { checkpointId: paused.json().checkpoint.id, kind: 'memory' },
      lost: [],
    });

    const killed = await server.ask('DELETE', `/v1/sandboxes/${id}`);
    expect(killed.json()).toMatchObject({ id, state: 'killed' });
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json()).toMatchObject({ state: 'killed' });
    const late = await server.ask('POST', `/v1/sandboxes/${id}/resume`);
    expect([late.statusCode, errorIn(late).code]).toEqual([410, 'killed']);
  });

  it('accepts a network policy while it runs, and refuses an invalid one', async () => {
    const id = await server.create();
    const path = `/v1/sandboxes/${id}/network`;
    const network = { mode: 'none', allow: ['*.example.com'] };
    const set = await server.ask('POST', path, { body: network });
    expect([set.statusCode, set.json().network]).toEqual([200, network]);
    for (const body of [{ allow: ['!'] }, { mode: 'some' }, { allow: 'all' }]) {
      const refused = await server.ask('POST', path, { body });
      expect([refused.statusCode, errorIn(refused).code]).toEqual([400, 'invalid_request']);
    }
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json().network).toEqual(network);
  });

  it('accepts a timeout, and none', async () => {
    const id = await server.create();
    const set = await server.ask('POST', `/v1/sandboxes/${id}/timeout`, { body: { timeoutSeconds: 600 } });
    expect(set.json()).toMatchObject({ timeoutSeconds: 600, endsAt: expect.any(Number) });
    const endless = await server.ask('POST', `/v1/sandboxes/${id}/timeout`, {
      body: { timeoutSeconds: null },
    });
    expect(endless.json()).toMatchObject({ timeoutSeconds: null, endsAt: null });
  });

  it('is forked, with one item per fork', async () => {
    const id = await server.create({ metadata: { project: 'p' } });
    const forked = await server.ask('POST', `/v1/sandboxes/${id}/fork`, { body: { count: 2 } });
    expect(forked.statusCode).toBe(201);
    expect(forked.json().items).toEqual([
      { sandbox: expect.objectContaining({ state: 'running', metadata: { project: 'p' }, urls: {} }) },
      { sandbox: expect.objectContaining({ state: 'running' }) },
    ]);
  });

  it('is rolled back to a checkpoint by id', async () => {
    const id = await server.create();
    const sealed = await server.ask('POST', `/v1/sandboxes/${id}/checkpoints`, { body: { name: 'before' } });
    expect(sealed.statusCode).toBe(201);
    const { id: checkpointId } = sealed.json();
    const back = await server.ask('POST', `/v1/sandboxes/${id}/rollback`, { body: { checkpointId } });
    expect(back.json()).toMatchObject({ sandbox: { state: 'running' }, source: { checkpointId } });
  });

  it('is 404 for every unknown or malformed id', async () => {
    for (const id of ['sbx_aaaaaaaaaaaaaaaaaaaa', 'nonsense', 'SBX_AAAAAAAAAAAAAAAAAAAA', 'x'.repeat(150)]) {
      const response = await server.ask('GET', `/v1/sandboxes/${id}`);
      expect([response.statusCode, errorIn(response).code]).toEqual([404, 'not_found']);
    }
  });

  it.each([
    { memoryMb: Number.MAX_SAFE_INTEGER },
    { memoryMb: 4_194_305 },
    { diskMb: Number.MAX_SAFE_INTEGER },
    { processes: Number.MAX_SAFE_INTEGER },
    { cpus: Number.MAX_VALUE },
    { cpus: 1e-300 },
    { cpus: 0 },
  ])('is refused with impossible resources and leaves nothing behind: %j', async (resources) => {
    const body = { name: 'too-much', resources };
    const response = await server.ask('POST', '/v1/sandboxes', { body });
    const [field] = Object.keys(resources);
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
    expect(JSON.stringify(errorIn(response).details)).toContain(field);
    const { items } = (await server.ask('GET', '/v1/sandboxes?limit=1000')).json();
    expect(items.filter(({ name }: { name: string }) => name === 'too-much')).toEqual([]);
  });

  it('is refused with a policy that its runtime does not support, and leaves nothing behind', async () => {
    const before = (await server.ask('GET', '/v1/sandboxes?limit=1000')).json().items.length;
    const refused = await server.ask('POST', '/v1/sandboxes', { body: { runtime: 'gvisor' } });
    expect([refused.statusCode, errorIn(refused).code]).toEqual([422, 'capability_unsupported']);
    expect((await server.ask('GET', '/v1/sandboxes?limit=1000')).json().items).toHaveLength(before);
  });
});

describe('the list of sandboxes', () => {
  it('has pages, and filters by state and metadata', async () => {
    const metadata = { batch: 'pages', 'with.dot': 'x y' };
    const ids = await Promise.all([1, 2, 3].map(() => server.create({ metadata })));
    await server.ask('POST', `/v1/sandboxes/${ids[0]}/pause`);
    const query = 'metadata.batch=pages&metadata.with.dot=x%20y';

    const seen: string[] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const page: { items: { id: string }[]; nextCursor: string | null } = (
        await server.ask('GET', `/v1/sandboxes?limit=2&${query}&cursor=${cursor}`)
      ).json();
      seen.push(...page.items.map((item) => item.id));
      cursor = page.nextCursor;
    }
    expect(seen).toEqual([...ids].sort());

    const paused = await server.ask('GET', `/v1/sandboxes?state=paused,lost&${query}`);
    expect(paused.json().items).toMatchObject([{ id: ids[0], state: 'paused' }]);
    const either = await server.ask('GET', `/v1/sandboxes?state=paused&state=running&${query}`);
    expect(either.json().items).toHaveLength(3);
  });

  it.each([
    'state=asleep',
    'limit=0',
    'limit=1001',
    'limit=x',
    'cursor=%27',
    'metdata.a=b',
    'metadata.=b',
    'sort=id',
  ])('refuses an unknown query: %s', async (query) => {
    const response = await server.ask('GET', `/v1/sandboxes?${query}`);
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
  });
});

describe('a cursor', () => {
  const unknown = 'aaaaaaaaaaaaaaaaaaaa';

  it.each([
    '/v1/sandboxes?cursor=zzz',
    `/v1/sandboxes?cursor=op_${unknown}`,
    '/v1/operations?cursor=zzz',
    `/v1/operations?cursor=op_${unknown}`,
    '/v1/keys?cursor=zzz',
    '/v1/events?cursor=zzz',
    '/v1/runtimes?cursor=zzz',
    '/v1/templates?cursor=zzz',
  ])('is refused by name when no page returned it: %s', async (url) => {
    const response = await server.ask('GET', url);
    expect([response.statusCode, errorIn(response)]).toMatchObject([
      400,
      { code: 'invalid_request', message: expect.stringContaining('cursor') },
    ]);
  });

  it('of another sandbox is refused in the list of checkpoints', async () => {
    const [one, other] = [await server.create(), await server.create()];
    const { checkpoint } = (await server.ask('POST', `/v1/sandboxes/${other}/pause`)).json();
    for (const cursor of ['zzz', `ckpt_${unknown}`, checkpoint.id]) {
      const response = await server.ask('GET', `/v1/sandboxes/${one}/checkpoints?cursor=${cursor}`);
      expect([response.statusCode, errorIn(response)]).toMatchObject([
        400,
        { code: 'invalid_request', message: expect.stringContaining('cursor') },
      ]);
    }
  });
});

describe('an Idempotency-Key', () => {
  const headers = { 'idempotency-key': 'create-1' };

  it('makes one sandbox for a repeated request, and refuses another body', async () => {
    const first = await server.ask('POST', '/v1/sandboxes', { body: { metadata: { a: '1' } }, headers });
    const second = await server.ask('POST', '/v1/sandboxes', { body: { metadata: { a: '1' } }, headers });
    expect(second.json().id).toBe(first.json().id);
    const other = await server.ask('POST', '/v1/sandboxes', { body: { metadata: { a: '2' } }, headers });
    expect([other.statusCode, errorIn(other).code]).toEqual([422, 'idempotency_mismatch']);
    const elsewhere = await server.ask('POST', '/v1/sandboxes', {
      body: {},
      headers,
      key: server.keys.other,
    });
    expect(elsewhere.statusCode).toBe(201);
  });

  it('works for requests that are not operations too', async () => {
    const id = await server.create();
    const url = `/v1/sandboxes/${id}/timeout`;
    const key = { 'idempotency-key': 'timeout-1' };
    const first = await server.ask('POST', url, { body: { timeoutSeconds: 100 }, headers: key });
    const repeated = await server.ask('POST', url, { body: { timeoutSeconds: 100 }, headers: key });
    expect(repeated.json()).toEqual(first.json());
    const other = await server.ask('POST', url, { body: { timeoutSeconds: 200 }, headers: key });
    expect(errorIn(other).code).toBe('idempotency_mismatch');
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json().timeoutSeconds).toBe(100);
  });

  it.each(['', ' ', 'a b', 'é', 'x'.repeat(256)])('is refused when it is invalid: %j', async (key) => {
    const response = await server.ask('POST', '/v1/sandboxes', {
      body: {},
      headers: { 'idempotency-key': key },
    });
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
  });
});

describe('operations', () => {
  it('are listed for one sandbox and found by id', async () => {
    const id = await server.create();
    const { operation } = (await server.ask('POST', `/v1/sandboxes/${id}/pause`)).json();
    const list = (await server.ask('GET', `/v1/operations?sandboxId=${id.slice(4)}`)).json();
    expect(list.items.map((one: { kind: string }) => one.kind).sort()).toEqual(['create', 'pause']);
    const one = await server.ask('GET', `/v1/operations/${operation.id}`);
    expect(one.json()).toMatchObject({ id: operation.id, kind: 'pause', outcome: 'succeeded' });
  });
});

describe('the catalogue', () => {
  it('has the runtimes with their capabilities, and the templates', async () => {
    expect((await server.ask('GET', '/v1/runtimes')).json().items).toMatchObject([
      { name: 'memory', default: true, capabilities: { pause: 'memory' } },
    ]);
    expect((await server.ask('GET', '/v1/templates')).json().items).toMatchObject([
      { name: 'base', runtime: 'memory' },
    ]);
  });
});
