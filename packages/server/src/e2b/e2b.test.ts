import { bareSandboxId, PORT_PLACEHOLDER, type SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;

beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

const ask = async (
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  url: string,
  body?: unknown,
  key = server.keys.default,
) => {
  const headers = { 'x-api-key': `e2b_${key}` };
  const answer = await server.ask(method, url, {
    key: null,
    headers,
    ...(body === undefined ? {} : { body }),
  });
  return {
    status: answer.statusCode,
    headers: answer.headers,
    body: answer.body === '' ? undefined : answer.json(),
  };
};

const create = async (more: object = {}, path = '/v2/sandboxes', key?: string): Promise<string> => {
  const { status, body } = await ask('POST', path, { templateID: 'base', ...more }, key);
  expect(status).toBe(201);
  return body.sandboxID as string;
};

const view = (id: string) => server.world.engine.get('default', `sbx_${id}` as SandboxId);

describe('both API versions', () => {
  it.each([
    ['/sandboxes', 15],
    ['/v2/sandboxes', 300],
  ])('POST %s creates a sandbox with a default timeout of %i seconds', async (path, seconds) => {
    const id = await create({}, path);
    expect(id).toMatch(/^[a-z0-9]{20}$/);
    expect(await view(id)).toMatchObject({
      timeoutSeconds: seconds,
      onTimeout: 'kill',
      onIdle: 'keep',
      autoResume: false,
    });
  });

  it.each(['/sandboxes', '/v2/sandboxes'])(
    'POST %s/{id}/connect: 200 for a running sandbox, 201 for a paused one',
    async (path) => {
      const id = await create();
      const connect = () => ask('POST', `${path}/${id}/connect`, { timeout: 60 });
      expect(await connect()).toMatchObject({ status: 200, body: { sandboxID: id } });
      expect(await ask('POST', `/sandboxes/${id}/pause`)).toMatchObject({ status: 204 });
      expect(await connect()).toMatchObject({ status: 201, body: { sandboxID: id } });
    },
  );

  it('accept ids of the native API and the other way round', async () => {
    const native = await server.create();
    expect(await ask('GET', `/sandboxes/${bareSandboxId(native)}`)).toMatchObject({ status: 200 });
    expect(await ask('GET', `/sandboxes/${native}`)).toMatchObject({ status: 200 });
    const theirs = await create();
    expect((await server.ask('GET', `/v1/sandboxes/${theirs}`)).statusCode).toBe(200);
  });

  it('translate policies: auto-pause with and without memory, auto-resume, privacy', async () => {
    const id = await create({
      autoPause: true,
      autoPauseMemory: false,
      autoResume: { enabled: true },
      network: { allowPublicTraffic: false },
      metadata: { a: 'b' },
    });
    expect(await view(id)).toMatchObject({
      onTimeout: 'pause',
      pauseMode: 'files',
      autoResume: true,
      preview: 'private',
      metadata: { a: 'b' },
    });
  });
});

describe('a failure', () => {
  it('has a body whose code is its status', async () => {
    const gone = 'i'.repeat(20);
    for (const [method, path] of [
      ['GET', `/sandboxes/${gone}`],
      ['DELETE', `/sandboxes/${gone}`],
      ['POST', `/sandboxes/${gone}/pause`],
      ['POST', `/v2/sandboxes/${gone}/connect`],
      ['POST', `/sandboxes/${gone}/fork`],
      ['GET', '/sandboxes/not-an-id'],
      ['DELETE', '/templates/not-there'],
    ] as const)
      expect(await ask(method, path)).toMatchObject({
        status: 404,
        body: { code: 404, error_code: 'not_found' },
      });
    const wrongKey = await ask('GET', '/v2/sandboxes', undefined, '0'.repeat(64));
    expect(wrongKey).toMatchObject({ status: 401, body: { code: 401 } });
    const badBody = await ask('POST', '/v2/sandboxes', { templateID: 7 });
    expect(badBody).toMatchObject({ status: 400, body: { code: 400 } });
  });

  it('is 404 for a killed sandbox and for another organisation', async () => {
    const id = await create();
    expect(await ask('GET', `/sandboxes/${id}`, undefined, server.keys.other)).toMatchObject({ status: 404 });
    expect(await ask('DELETE', `/sandboxes/${id}`)).toMatchObject({ status: 204 });
    expect(await ask('DELETE', `/sandboxes/${id}`)).toMatchObject({ status: 404, body: { code: 404 } });
    expect(await ask('POST', `/v2/sandboxes/${id}/connect`)).toMatchObject({ status: 404 });
  });

  it('is 409 only for pausing or forking a paused sandbox', async () => {
    const id = await create();
    expect(await ask('POST', `/sandboxes/${id}/pause`, {})).toMatchObject({ status: 204 });
    expect(await ask('POST', `/sandboxes/${id}/pause`, {})).toMatchObject({
      status: 409,
      body: { code: 409 },
    });
    expect(await ask('POST', `/sandboxes/${id}/fork`, {})).toMatchObject({
      status: 409,
      body: { code: 409 },
    });
    expect(await ask('POST', `/sandboxes/${id}/resume`, {})).toMatchObject({ status: 201 });
    expect(await ask('POST', `/sandboxes/${id}/resume`, {})).toMatchObject({ status: 409 });
  });

  it.each([
    ['POST', '/templates'],
    ['POST', '/templates/x/builds/y'],
    ['GET', '/volumes'],
    ['POST', '/volumes/x/y'],
    ['GET', '/secrets'],
  ] as const)('%s %s says that it is not supported yet', async (method, path) => {
    const answer = await ask(method, path, method === 'GET' ? undefined : {});
    expect(answer).toMatchObject({ status: 501, body: { code: 501, error_code: 'capability_unsupported' } });
  });

  it('refuses a snapshot without memory instead of taking one with it', async () => {
    const id = await create();
    const refused = await ask('POST', `/sandboxes/${id}/snapshots`, { memory: false });
    expect(refused).toMatchObject({ status: 501 });
    expect((await ask('GET', `/snapshots?sandboxID=${id}`)).body).toEqual([]);
  });

  it.each([
    [{ volumeMounts: [{ name: 'x', path: '/x' }] }],
    [{ network: { httpsPorts: [3000] } }],
    [{ network: { egressProxy: { address: 'proxy.example.com:1080' } } }],
    [{ network: { allowOut: ['10.0.0.1'], denyOut: ['10.0.0.0/8'] } }],
  ])('refuses the unsupported option %j instead of ignoring it', async (wish) => {
    expect(await ask('POST', '/v2/sandboxes', { templateID: 'base', ...wish })).toMatchObject({
      status: 501,
    });
  });
});

it('says that E2B’s code interpreter is not supported yet, unless a template has its name', async () => {
  const wish = { templateID: 'code-interpreter-v1' };
  expect(await ask('POST', '/v2/sandboxes', wish)).toMatchObject({
    status: 501,
    body: { message: expect.stringMatching(/not supported yet.*"code-interpreter-v1".*port 49999/) },
  });
  await ask('POST', `/sandboxes/${await create()}/snapshots`, { name: wish.templateID });
  expect(await ask('POST', '/v2/sandboxes', wish)).toMatchObject({ status: 201 });
  await ask('DELETE', `/templates/${wish.templateID}`);
});

describe('the option mcp', () => {
  const wish = { mcp: { github: { token: 'x' } } };

  it('says that E2B’s own template is missing, and accepts one of yours', async () => {
    const refused = await ask('POST', '/v2/sandboxes', { templateID: 'mcp-gateway', ...wish });
    expect(refused).toMatchObject({ status: 501, body: { message: expect.stringMatching(/"mcp-gateway"/) } });
    const id = await create();
    const { body } = await ask('POST', `/sandboxes/${id}/snapshots`, {});
    expect((await ask('POST', '/v2/sandboxes', { templateID: body.snapshotID, ...wish })).status).toBe(201);
  });
});

describe('network.maskRequestHost', () => {
  it('is the Host that programs of the sandbox and of its forks get', async () => {
    const maskRequestHost = `localhost:${PORT_PLACEHOLDER}`;
    const id = await create({ network: { maskRequestHost } });
    expect(await view(id)).toMatchObject({ requestHost: maskRequestHost });
    expect((await ask('GET', `/sandboxes/${id}`)).body.network).toMatchObject({ maskRequestHost });
    const [fork] = (await ask('POST', `/sandboxes/${id}/fork`, {})).body as unknown as [
      { sandbox: { sandboxID: string } },
    ];
    expect(await view(fork.sandbox.sandboxID)).toMatchObject({ requestHost: maskRequestHost });
    for (const bad of ['a b', 'x\r\nY: z', 'localhost:{PORT}', 'http://localhost'])
      expect(
        await ask('POST', '/v2/sandboxes', { templateID: 'base', network: { maskRequestHost: bad } }),
      ).toMatchObject({
        status: 400,
      });
  });
});

describe('network.rules', () => {
  const rulesOf = (value: string) => ({
    'api.example.com': [{ transform: { headers: { Authorization: value } } }],
  });

  it('become secrets without a name, which the sandbox uses until the network is set without them', async () => {
    const network = { rules: rulesOf('Bearer hidden-1') };
    const made = await ask('POST', '/v2/sandboxes', { templateID: 'base', network });
    expect(made).toMatchObject({ status: 201 });
    const id = made.body.sandboxID;
    const { network: created } = await view(id);
    expect(created.secrets).toEqual([expect.stringMatching(/^rule_/)]);
    expect(await ask('PUT', `/sandboxes/${id}/network`, { rules: rulesOf('Bearer hidden-2') })).toMatchObject(
      {
        status: 204,
      },
    );
    const { network: changed } = await view(id);
    expect(changed.secrets).not.toEqual(created.secrets);
    await ask('PUT', `/sandboxes/${id}/network`, {});
    expect((await view(id)).network.secrets).toBeUndefined();
    const stored = await server.world.db.query('SELECT * FROM secrets');
    expect(stored).toHaveLength(2);
    const everything = [stored, await server.world.db.query('SELECT * FROM events'), server.log, made.body];
    expect(JSON.stringify(everything)).not.toContain('hidden-');
  });

  it('are 400 for a host or a header that cannot have a rule', async () => {
    for (const rules of [{ '*': [] }, { 'example.com': [{ transform: { headers: { Host: 'x' } } }] }])
      expect(await ask('POST', '/v2/sandboxes', { templateID: 'base', network: { rules } })).toMatchObject({
        status: 400,
      });
  });
});

describe('lifetimes', () => {
  const left = async (id: string) => ((await view(id)).endsAt ?? 0) - Date.now();

  it('connect and refresh never set an earlier end, timeout may; the configured timeout stays for later runs', async () => {
    const id = await create({ timeout: 1_000 });
    await ask('POST', `/sandboxes/${id}/connect`, { timeout: 10 });
    await ask('POST', `/sandboxes/${id}/refreshes`, { duration: 10 });
    expect(await left(id)).toBeGreaterThan(900_000);
    await ask('POST', `/sandboxes/${id}/refreshes`, { duration: 2_000 });
    expect(await left(id)).toBeGreaterThan(1_900_000);
    expect(await ask('POST', `/sandboxes/${id}/timeout`, { timeout: 20 })).toMatchObject({ status: 204 });
    expect(await left(id)).toBeLessThan(21_000);
    expect(await view(id)).toMatchObject({ timeoutSeconds: 1_000 });
  });

  it('a connect without a timeout uses the configured timeout, and never less than E2B', async () => {
    for (const [timeout, seconds] of [
      [1_000, 1_000],
      [60, 300],
    ] as const) {
      const id = await create({ timeout });
      await ask('POST', `/sandboxes/${id}/pause`);
      await ask('POST', `/v2/sandboxes/${id}/connect`);
      expect(await left(id)).toBeGreaterThan((seconds - 10) * 1_000);
      expect(await left(id)).toBeLessThanOrEqual(seconds * 1_000);
    }
  });

  it('a sandbox without a timeout keeps none', async () => {
    const id = bareSandboxId(await server.create());
    await ask('POST', `/sandboxes/${id}/pause`);
    await ask('POST', `/v2/sandboxes/${id}/connect`);
    expect((await view(id)).endsAt).toBeNull();
    expect((await ask('GET', `/sandboxes/${id}`)).body.endAt).toMatch(/^9999-/);
  });

  it('a paused sandbox has no end to set', async () => {
    const id = await create();
    await ask('POST', `/sandboxes/${id}/pause`);
    expect(await ask('POST', `/sandboxes/${id}/timeout`, { timeout: 20 })).toMatchObject({ status: 404 });
  });
});

describe('the list', () => {
  const metadata = { group: 'of the list', 'a b': 'c&d=é' };
  const once = Object.entries(metadata).map(([key, value]): [string, string] => [
    encodeURIComponent(key),
    encodeURIComponent(value),
  ]);
  const encoded = encodeURIComponent(new URLSearchParams(once).toString());
  let ids: string[];

  beforeAll(async () => {
    ids = [];
    for (let i = 0; i < 3; i++) ids.push(await create({ metadata }));
    await ask('POST', `/sandboxes/${ids[1]}/pause`);
  });

  const list = async (query: string) => {
    const { body, headers } = await ask('GET', `/v2/sandboxes?metadata=${encoded}&${query}`);
    return { ids: body.map((item: { sandboxID: string }) => item.sandboxID), next: headers['x-next-token'] };
  };

  it('is newest first across both states, or oldest first, and has filters', async () => {
    expect(await list('')).toEqual({ ids: ids.toReversed(), next: undefined });
    expect((await list('order=asc')).ids).toEqual(ids);
    expect((await list('state=paused')).ids).toEqual([ids[1]]);
    expect((await list('state=running,paused')).ids).toHaveLength(3);
    expect((await list('template=other')).ids).toEqual([]);
    expect((await list(`startedAfter=${new Date(Date.now() + 60_000).toISOString()}`)).ids).toEqual([]);
    expect((await list(`startedAfter=${new Date(0).toISOString()}`)).ids).toHaveLength(3);
  });

  it.each(['asc', 'desc'])('has pages that end, %s', async (order) => {
    const seen: string[] = [];
    for (let token: unknown = ''; token !== undefined; ) {
      const page = await list(`limit=2&order=${order}&nextToken=${String(token)}`);
      seen.push(...page.ids);
      token = page.next;
    }
    expect(seen).toEqual(order === 'asc' ? ids : ids.toReversed());
  });

  it('refuses an invalid filter and an invalid token', async () => {
    expect(await ask('GET', '/v2/sandboxes?state=killed')).toMatchObject({ status: 400 });
    expect(await ask('GET', '/v2/sandboxes?nextToken=xyz')).toMatchObject({ status: 400 });
    expect(await ask('GET', '/v2/sandboxes?limit=0')).toMatchObject({ status: 400 });
  });

  it('of the first API version shows running sandboxes', async () => {
    const { body } = await ask('GET', `/sandboxes?metadata=${encoded}`);
    expect(body.map((item: { sandboxID: string }) => item.sandboxID)).toEqual([ids[2], ids[0]]);
  });
});

describe('snapshots', () => {
  it('have ids that both APIs accept, names that move to the newest, and are deleted once', async () => {
    const id = await create();
    const { body: plain } = await ask('POST', `/sandboxes/${id}/snapshots`, {});
    expect(plain).toEqual({ snapshotID: expect.stringMatching(/^ckpt_/), names: [] });
    const { body: named } = await ask('POST', `/sandboxes/${id}/snapshots`, { name: 'state' });
    expect(named).toEqual({ snapshotID: 'default/state:default', names: ['default/state'] });
    await ask('POST', `/sandboxes/${id}/snapshots`, { name: 'state' });
    const { body: all } = await ask('GET', `/snapshots?sandboxID=${id}`);
    expect(all.map((item: { names: string[] }) => item.names)).toEqual([['default/state'], [], []]);
    expect((await ask('GET', '/snapshots?name=state')).body).toHaveLength(1);
    expect((await ask('GET', `/snapshots?sandboxID=${'i'.repeat(20)}`)).body).toEqual([]);
    for (const templateID of [plain.snapshotID, 'state', 'default/state', 'default/state:default']) {
      expect(await ask('POST', '/v2/sandboxes', { templateID })).toMatchObject({ status: 201 });
    }
    const path = `/templates/${encodeURIComponent(named.snapshotID)}`;
    expect(await ask('DELETE', path)).toMatchObject({ status: 204 });
    expect(await ask('DELETE', path)).toMatchObject({ status: 404 });
    expect(await ask('POST', '/v2/sandboxes', { templateID: 'state' })).toMatchObject({ status: 404 });
    expect(await ask('DELETE', `/templates/${plain.snapshotID}`)).toMatchObject({ status: 204 });
    expect(await ask('POST', '/v2/sandboxes', { templateID: plain.snapshotID })).toMatchObject({
      status: 404,
    });
  });

  it('cannot take the name of a built-in template, and leave nothing behind', async () => {
    const id = await create();
    expect(await ask('POST', `/sandboxes/${id}/snapshots`, { name: 'base' })).toMatchObject({ status: 409 });
    expect(await ask('POST', `/sandboxes/${id}/snapshots`, { name: 'a b' })).toMatchObject({ status: 400 });
    expect((await ask('GET', `/snapshots?sandboxID=${id}`)).body).toEqual([]);
    expect(await ask('DELETE', '/templates/base')).toMatchObject({ status: 403 });
  });
});

describe('other routes', () => {
  it('fork, with one result per fork', async () => {
    const id = await create({ metadata: { a: 'b' } });
    const { status, body } = await ask('POST', `/sandboxes/${id}/fork`, { count: 2, timeout: 60 });
    expect(status).toBe(201);
    expect(body).toHaveLength(2);
    for (const { sandbox } of body)
      expect(await view(sandbox.sandboxID)).toMatchObject({ metadata: { a: 'b' } });
  });

  it('list templates and find them by alias', async () => {
    expect((await ask('GET', '/templates')).body).toMatchObject([{ templateID: 'base', public: true }]);
    expect(await ask('GET', '/templates/aliases/base')).toMatchObject({
      status: 200,
      body: { public: true },
    });
    expect(await ask('GET', '/templates/aliases/other')).toMatchObject({ status: 404 });
  });

  it('return logs in both shapes and both directions', async () => {
    const id = await create();
    await ask('POST', `/sandboxes/${id}/pause`);
    const { body: first } = await ask('GET', `/sandboxes/${id}/logs`);
    expect(first.logs.at(-1).line).toContain('sandbox.paused');
    const { body: second } = await ask('GET', `/v2/sandboxes/${id}/logs?direction=backward&limit=1`);
    expect(second.logs).toMatchObject([{ message: 'sandbox.paused', level: 'info' }]);
    expect((await ask('GET', `/v2/sandboxes/${id}/logs?level=error`)).body).toEqual({ logs: [] });
  });

  it('return metrics without waking a sandbox', async () => {
    const id = await create();
    await ask('POST', `/sandboxes/${id}/pause`);
    expect(await ask('GET', `/sandboxes/${id}/metrics`)).toMatchObject({ status: 200, body: [] });
    expect((await ask('GET', `/sandboxes/metrics?sandbox_ids=${id},nobody`)).body).toEqual({ sandboxes: {} });
    expect(await view(id)).toMatchObject({ state: 'paused' });
  });

  it('are not in the OpenAPI document of the native API', async () => {
    const { paths } = (await server.ask('GET', '/v1/openapi.json')).json<{ paths: object }>();
    expect(Object.keys(paths).filter((path) => !/^\/(?:v1\/|health|metrics)/.test(path))).toEqual([]);
  });
});

describe('a sandbox that the runtime pauses to copy it', () => {
  it('is shown as running, and requests that arrive meanwhile wait', async () => {
    const own = server;
    const frozen = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    server = await testServer({
      runtime: { capabilities: { snapshotWhileRunning: false } },
      wrap: (_, runtime) => {
        const capture = runtime.capture.bind(runtime);
        runtime.capture = async (...given) => {
          frozen.resolve();
          await goOn.promise;
          return capture(...given);
        };
        return {};
      },
    });
    try {
      const id = await create();
      const snapshot = ask('POST', `/sandboxes/${id}/snapshots`, {});
      await frozen.promise;
      expect(await view(id)).toMatchObject({ state: 'pausing', operationKind: 'snapshot' });
      expect((await ask('GET', `/sandboxes/${id}`)).body.state).toBe('running');
      expect((await ask('GET', '/v2/sandboxes?state=running')).body).toHaveLength(1);
      expect((await ask('GET', '/v2/sandboxes?state=paused')).body).toHaveLength(0);
      const later = ask('POST', `/sandboxes/${id}/timeout`, { timeout: 60 });
      const pause = ask('POST', `/sandboxes/${id}/pause`, {});
      goOn.resolve();
      expect((await snapshot).status).toBe(201);
      expect((await pause).status).toBe(204);
      // The request may run before the pause or after it.
      expect([204, 404]).toContain((await later).status);
      expect((await ask('GET', `/sandboxes/${id}`)).body.state).toBe('paused');
    } finally {
      await server.dispose();
      server = own;
    }
  });
});
