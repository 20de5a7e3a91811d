import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import {
  API_KEY,
  ask,
  type FakeSandboxes,
  type GatewayWorld,
  makeGatewayWorld,
} from '../../testing/index.ts';

let world: GatewayWorld;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;
let passed: Parameters<RequestListener>[0][];

async function begin(more: Parameters<FakeSandboxes['make']>[0] = {}): Promise<void> {
  sandbox = world.sandboxes.make(more);
  host = world.hostOf(sandbox);
  passed = [];
  await world.serve(sandbox, (request, response) => {
    passed.push(request);
    response.setHeader('set-cookie', [
      'own=1; Path=/',
      'wide=1; Domain=sbx.localhost',
      'torpor-preview=forged',
    ]);
    response.end(`seen by the app: ${request.url}`);
  });
}

beforeEach(async () => {
  world = await makeGatewayWorld();
});
afterEach(() => world[Symbol.asyncDispose]());

const get = (headers: Record<string, string> = {}, path = '/', method = 'GET') =>
  ask(world.port, host, { headers, path, method });

describe('a private preview', () => {
  beforeEach(() => begin({ preview: 'private' }));

  it('refuses a request without credentials, and does not wake the sandbox', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    const answer = await get();
    expect(answer.status).toBe(403);
    expect(answer.json()).toMatchObject({ error: { code: 'forbidden', details: { dispatched: false } } });
    expect(sandbox.wakes).toHaveLength(0);
    expect(passed).toHaveLength(0);
  });

  it.each(['Torpor-Preview-Token', 'E2b-Traffic-Access-Token'])(
    'accepts its token in %s, and does not pass the token on',
    async (name) => {
      const token = world.gateway.tokens.previewToken(sandbox.id);
      expect(await get({ [name]: token })).toMatchObject({ status: 200 });
      expect(JSON.stringify(passed[0]?.rawHeaders)).not.toContain(token);
    },
  );

  it('has a token that is valid for this sandbox only', async () => {
    const other = world.sandboxes.make({ preview: 'private' });
    const { tokens } = world.gateway;
    for (const wrong of [
      tokens.previewToken(other.id),
      tokens.accessToken(sandbox.id),
      tokens.previewToken(sandbox.id).slice(1),
      tokens.previewToken(sandbox.id).toUpperCase(),
      '',
    ])
      expect(await get({ 'Torpor-Preview-Token': wrong })).toMatchObject({ status: 403 });
  });

  it('admits a browser by a link, once, and by a cookie from then on', async () => {
    const { token } = world.gateway.tokens.link(sandbox.id, 60_000);
    const welcome = await get(
      { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' },
      `/a?x=1&torpor_token=${token}&y=2`,
    );
    expect(welcome.status).toBe(303);
    expect(welcome.headers.location).toBe('/a?x=1&y=2');
    const [set = ''] = welcome.headers['set-cookie'] ?? [];
    expect(set).toMatch(/^torpor-preview=[^;]+; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Lax$/);
    const cookie = set.split(';')[0] ?? '';
    const inside = await get({ cookie: `own=2; ${cookie}; more=3` }, '/a?x=1&y=2');
    expect(inside.text).toBe('seen by the app: /a?x=1&y=2');
    expect(passed[0]?.headers.cookie).toBe('own=2; more=3');
    const again = await get({}, `/?torpor_token=${token}`);
    expect(again.status).toBe(403);
    expect(again.json()).toMatchObject({ error: { message: expect.stringContaining('used before') } });
  });

  it('refuses a link that has expired, is for another sandbox, or is forged', async () => {
    const other = world.sandboxes.make({ preview: 'private' });
    const { tokens } = world.gateway;
    const good = tokens.link(sandbox.id, 60_000).token;
    const wrong = [
      tokens.link(sandbox.id, -1).token,
      tokens.link(other.id, 60_000).token,
      good.replace(/^\d+/, (until) => String(Number(until) + 1)),
      'x',
      '',
    ];
    for (const token of wrong)
      expect(await get({}, `/?torpor_token=${token}`)).toMatchObject({ status: 403 });
    expect(await get({}, `/?torpor_token=${good}`)).toMatchObject({ status: 303 });
  });

  it('never redirects to another host', async () => {
    const { token } = world.gateway.tokens.link(sandbox.id, 60_000);
    const { headers } = await get({}, `//evil.example/?torpor_token=${token}`);
    expect(headers.location).toBe('/evil.example/');
  });

  it('refuses a cookie that is for another sandbox, has expired, or was changed', async () => {
    const other = world.sandboxes.make({ preview: 'private' });
    const { tokens } = world.gateway;
    const good = tokens.cookie(sandbox.id, 60_000);
    for (const wrong of [tokens.cookie(other.id, 60_000), tokens.cookie(sandbox.id, -1), `9${good}`])
      expect(await get({ cookie: `torpor-preview=${wrong}` })).toMatchObject({ status: 403 });
  });

  it('stays reachable when a page of another sandbox adds a cookie of the same name', async () => {
    const good = world.gateway.tokens.cookie(sandbox.id, 60_000);
    expect(await get({ cookie: `torpor-preview=tossed; torpor-preview=${good}` })).toMatchObject({
      status: 200,
    });
  });

  it("refuses requests that another sandbox's page sends with the browser's cookie", async () => {
    const cookie = `torpor-preview=${world.gateway.tokens.cookie(sandbox.id, 60_000)}`;
    const neighbour = `http://3000-zzzzzzzzzzzzzzzzzzzz.sbx.localhost:${world.port}`;
    const own = `http://${host}`;
    expect(await get({ cookie, origin: neighbour }, '/', 'POST')).toMatchObject({ status: 403 });
    expect(await get({ cookie, origin: 'null' }, '/', 'POST')).toMatchObject({ status: 403 });
    expect(await get({ cookie, 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'no-cors' })).toMatchObject({
      status: 403,
    });
    expect(await get({ cookie, origin: own, 'sec-fetch-site': 'same-origin' }, '/', 'POST')).toMatchObject({
      status: 200,
    });
    expect(await get({ cookie, 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'navigate' })).toMatchObject({
      status: 200,
    });
  });

  it("refuses a WebSocket that another sandbox's page opens with the browser's cookie", async () => {
    const cookie = `torpor-preview=${world.gateway.tokens.cookie(sandbox.id, 60_000)}`;
    const socket = new WebSocket(`ws://127.0.0.1:${world.port}/`, {
      headers: { host, cookie },
      origin: 'http://3000-zzzzzzzzzzzzzzzzzzzz.sbx.localhost',
    });
    socket.on('error', () => {});
    const [, response] = (await once(socket, 'unexpected-response')) as [unknown, { statusCode: number }];
    expect(response.statusCode).toBe(403);
    socket.terminate();
  });

  it('shows its status only to clients with access', async () => {
    expect(await get({}, '/.well-known/torpor/status')).toMatchObject({ status: 403 });
    const token = world.gateway.tokens.previewToken(sandbox.id);
    expect(await get({ 'torpor-preview-token': token }, '/.well-known/torpor/status')).toMatchObject({
      status: 200,
    });
  });
});

describe('a public preview', () => {
  beforeEach(() => begin());

  it("keeps an app's cookies from other sandboxes, and the preview cookie from the app", async () => {
    const { headers } = await get();
    expect(headers['set-cookie']).toEqual(['own=1; Path=/']);
  });

  it.each([
    'a=b; domain=sbx.localhost',
    'a=b; Domain=.sbx.localhost',
    'a=b; path=/; DOMAIN = localhost ; Secure',
    'a=b; Domain="sbx.localhost"',
    'a=b;Domain=sbx.localhost;Domain=',
    'a=b; Domain=other.example',
    '__Host-torpor-preview=x; Path=/; Secure',
  ])('drops the cookie %s', async (cookie) => {
    await world.serve(sandbox, (_, response) => response.setHeader('set-cookie', cookie).end(), 4000);
    const { headers } = await ask(world.port, world.hostOf(sandbox, 4000));
    expect(headers).not.toHaveProperty('set-cookie');
  });

  it('passes on a cookie for exactly this host', async () => {
    const own = world.hostOf(sandbox, 4000).replace(/:\d+$/, '');
    await world.serve(
      sandbox,
      (_, response) => response.setHeader('set-cookie', `a=b; Domain=${own}`).end(),
      4000,
    );
    expect((await ask(world.port, world.hostOf(sandbox, 4000))).headers['set-cookie']).toEqual([
      `a=b; Domain=${own}`,
    ]);
  });

  it("hides Torpor's keys and headers from the app, and passes on the app's own of the same form", async () => {
    const appKey = 'a'.repeat(64);
    await get({
      'X-Api-Key': API_KEY,
      Authorization: `Bearer ${appKey}`,
      'Torpor-User': 'ada',
      'Torpor-Sandbox': sandbox.id,
      'Torpor-Anything': 'x',
      'E2b-Sandbox-Id': sandbox.bare,
      'E2b-Sandbox-Port': '3000',
      'X-Access-Token': world.gateway.tokens.accessToken(sandbox.id),
    });
    await get({
      Authorization: `Bearer ${API_KEY}`,
      'X-Api-Key': 'app-key',
      'X-Access-Token': 'the app’s'.replace('’', ''),
    });
    const [first, second] = passed.map(({ headers }) => headers);
    expect(Object.keys(first ?? {}).filter((name) => /torpor|e2b|api-key|access-token/.test(name))).toEqual(
      [],
    );
    expect(first).toMatchObject({ authorization: `Bearer ${appKey}` });
    expect(second).not.toHaveProperty('authorization');
    expect(second).toMatchObject({ 'x-api-key': 'app-key', 'x-access-token': 'the apps' });
  });

  it("does not forward Torpor's headers when Connection lists them", async () => {
    await get({ Connection: 'Torpor-User, close', 'Torpor-User': 'ada', Cookie: 'torpor-preview=x' });
    expect(passed[0]?.headers).not.toHaveProperty('torpor-user');
    expect(passed[0]?.headers).not.toHaveProperty('cookie');
  });
});

describe('the path form', () => {
  beforeEach(() => begin({ preview: 'private' }));
  const path = (rest = '/a?b=c') => `/v1/sandboxes/${sandbox.id}/ports/3000${rest}`;
  const byPath = (headers: Record<string, string>, rest?: string) =>
    ask(world.port, '127.0.0.1', { path: path(rest), headers });

  it('needs a key in a header, whatever the preview is, and never takes a cookie', async () => {
    const cookie = `torpor-preview=${world.gateway.tokens.cookie(sandbox.id, 60_000)}`;
    expect(await byPath({})).toMatchObject({ status: 401 });
    expect(await byPath({ cookie })).toMatchObject({ status: 401 });
    expect(
      await byPath({ 'torpor-preview-token': world.gateway.tokens.previewToken(sandbox.id) }),
    ).toMatchObject({ status: 401 });
    expect(await byPath({ 'x-api-key': API_KEY })).toMatchObject({
      status: 200,
      text: 'seen by the app: /a?b=c',
    });
    expect(await byPath({ authorization: `Bearer ${API_KEY}` })).toMatchObject({ status: 200 });
  });

  it("hides the key from the app, and passes on the app's own Authorization", async () => {
    await byPath({
      'x-api-key': API_KEY,
      authorization: 'Bearer the-app’s-own'.replace('’', ''),
      cookie: 'api=1',
    });
    expect(passed[0]?.headers).toMatchObject({ authorization: 'Bearer the-apps-own', host: host });
    expect(passed[0]?.headers).not.toHaveProperty('x-api-key');
    expect(passed[0]?.headers).not.toHaveProperty('cookie');
  });

  it('does not find a sandbox of another organisation', async () => {
    const other = world.sandboxes.make({ org: 'other' });
    const answer = await ask(world.port, '127.0.0.1', {
      path: `/v1/sandboxes/${other.id}/ports/3000/`,
      headers: { 'x-api-key': API_KEY },
    });
    expect(answer.status).toBe(404);
  });

  it("restricts the app's pages, which share the API's origin, to a browser sandbox", async () => {
    await world.serve(
      sandbox,
      (_, response) => {
        response.setHeader('set-cookie', 'a=b');
        response.setHeader('clear-site-data', '"*"');
        response.setHeader('service-worker-allowed', '/');
        response.setHeader('content-security-policy', "default-src 'self'");
        response.end('<script>alert(1)</script>');
      },
      4000,
    );
    const { headers } = await ask(world.port, '127.0.0.1', {
      path: `/v1/sandboxes/${sandbox.id}/ports/4000/`,
      headers: { 'x-api-key': API_KEY },
    });
    expect(headers['content-security-policy']).toBe("default-src 'self', sandbox");
    for (const gone of ['set-cookie', 'clear-site-data', 'service-worker-allowed'])
      expect(headers).not.toHaveProperty(gone);
  });
});

describe('the header form', () => {
  beforeEach(() => begin());

  it("gives the app its own host name, and restricts its pages, which share the API's origin", async () => {
    const answer = await ask(world.port, '127.0.0.1', {
      headers: { 'Torpor-Sandbox': sandbox.id, 'Torpor-Port': '3000' },
      path: '/x',
    });
    expect(answer).toMatchObject({ status: 200, text: 'seen by the app: /x' });
    expect(answer.headers['content-security-policy']).toBe('sandbox');
    expect(passed[0]?.headers).toMatchObject({ host, 'x-forwarded-host': '127.0.0.1' });
  });
});

describe("the agent's port", () => {
  beforeEach(async () => {
    await begin({ preview: 'public' });
    await world.serve(
      sandbox,
      (request, response) => {
        passed.push(request);
        if (request.url === '/health') response.writeHead(204).end();
        else response.end('the agent');
      },
      1,
    );
    const address = sandbox.ports.get(1);
    if (address === undefined) throw new Error('no address');
    sandbox.ports.delete(1);
    sandbox.agent = { address, token: 'token-of-this-start' };
    host = world.hostOf(sandbox, 49983);
  });
  const token = () => world.gateway.tokens.accessToken(sandbox.id);

  it('answers 401 in E2B’s shape without the token, also for a public preview', async () => {
    for (const headers of [{}, { 'x-access-token': 'wrong' }, { 'x-access-token': 'token-of-this-start' }]) {
      const answer = await get(headers, '/files?path=/etc/passwd');
      expect(answer.status).toBe(401);
      expect(answer.json()).toEqual({ code: 401, message: expect.any(String) });
    }
    expect(passed).toHaveLength(0);
  });

  it("gets its own token instead of the client's", async () => {
    expect(await get({ 'x-access-token': token() }, '/process.Process/List', 'POST')).toMatchObject({
      status: 200,
    });
    expect(passed[0]?.headers['x-access-token']).toBe('token-of-this-start');
    expect(passed[0]?.rawHeaders.filter((name) => /x-access-token/i.test(name))).toHaveLength(1);
  });

  it('accepts turns only with the token', async () => {
    expect(await get({ 'x-access-token': token() }, '/turns', 'POST')).toMatchObject({ status: 200 });
    for (const headers of [{}, { 'x-access-token': 'guess' }])
      expect(await get(headers, '/turns', 'POST')).toMatchObject({ status: 401 });
    expect(passed).toHaveLength(1);
  });

  it('accepts a signature for the one file that was signed, and for nothing else', async () => {
    const signed = `signature=read-${token()}`;
    expect(await get({}, `/files?path=a&${signed}`)).toMatchObject({ status: 200, text: 'the agent' });
    expect(passed[0]?.headers['x-access-token']).toBe('token-of-this-start');
    expect(await get({}, `/files?path=a&signature=write-${token()}`, 'POST')).toMatchObject({ status: 200 });
    for (const [path, method] of [
      [`/files?path=a&${signed}`, 'POST'],
      [`/files/compose?${signed}`, 'GET'],
      [`/metrics?${signed}`, 'GET'],
      ['/files?path=a&signature=guess', 'GET'],
      ['/files?path=a', 'GET'],
    ] as const)
      expect(await get({}, path, method)).toMatchObject({ status: 401 });
    expect(await get({ 'x-access-token': 'wrong' }, `/files?path=a&${signed}`)).toMatchObject({
      status: 401,
    });
    expect(passed).toHaveLength(2);
  });

  it.each([
    '/init',
    '/ports',
    '/freeze',
    '//init',
    '/./init',
    '/%69nit',
    '/INIT',
    '/files/../init',
    '/init/',
    '/',
  ])('refuses %s with any credentials', async (path) => {
    expect(await get({ 'x-access-token': token() }, path, 'POST')).toMatchObject({ status: 404 });
    expect(passed).toHaveLength(0);
  });

  it('answers a health question without a token, and does not add the token to it', async () => {
    expect(await get({}, '/health')).toMatchObject({ status: 204 });
    expect(await get({ 'x-access-token': 'guess' }, '/health')).toMatchObject({ status: 204 });
    for (const { headers } of passed) expect(headers).not.toHaveProperty('x-access-token');
  });

  it.each(['paused', 'pausing', 'resuming', 'killed'] as const)(
    'answers a health question with 502 while the sandbox is %s, and does not wake it',
    async (state) => {
      world.sandboxes.become(sandbox.id, { state });
      const answer = await get({}, '/health');
      expect(answer.status).toBe(502);
      expect(answer.json()).toEqual({
        sandboxId: sandbox.bare,
        message: 'The sandbox was not found',
        code: 502,
      });
      expect(sandbox.wakes).toHaveLength(0);
      expect(sandbox.leases).toBe(0);
    },
  );

  it('wakes the sandbox for every other request', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    expect(await get({ 'x-access-token': token() }, '/metrics')).toMatchObject({
      status: 200,
      text: 'the agent',
    });
    expect(sandbox.wakes).toHaveLength(1);
  });
});

describe("E2B's statuses and bodies", () => {
  beforeEach(() => begin());
  const headers = () => ({ 'E2b-Sandbox-Id': sandbox.bare, 'E2b-Sandbox-Port': '3000' });
  const theirs = () => ask(world.port, '127.0.0.1', { headers: headers() });

  it.each(['killed', 'lost', 'failed'] as const)('a sandbox that is %s was not found: 502', async (state) => {
    world.sandboxes.become(sandbox.id, { state });
    const answer = await theirs();
    expect(answer.status).toBe(502);
    expect(answer.json()).toEqual({
      sandboxId: sandbox.bare,
      message: 'The sandbox was not found',
      code: 502,
    });
  });

  it('a sandbox whose autoResume is off was not found: 502', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused', autoResume: false });
    expect((await theirs()).json()).toMatchObject({ code: 502, message: 'The sandbox was not found' });
  });

  it('a port that is closed', async () => {
    sandbox.ports.delete(3000);
    expect((await theirs()).json()).toEqual({
      sandboxId: sandbox.bare,
      message: 'The sandbox is running but port is not open',
      port: 3000,
      code: 502,
    });
  });

  describe('for a removed sandbox that was created through E2B’s API', () => {
    beforeEach(() => begin({ dialect: 'e2b', state: 'killed' }));
    const accepting = (accept: string) => ask(world.port, host, { headers: { accept } });

    it.each(['*/*', 'application/json'])(
      'are sent to a client that accepts %s and asks its host',
      async (accept) => {
        const answer = await accepting(accept);
        expect(answer.status).toBe(502);
        expect(answer.json()).toEqual({
          sandboxId: sandbox.bare,
          message: 'The sandbox was not found',
          code: 502,
        });
      },
    );

    it('are replaced by the page for a browser at its host', async () => {
      const answer = await accepting('text/html,*/*;q=0.8');
      expect([answer.status, answer.headers['content-type']]).toEqual([410, 'text/html; charset=utf-8']);
    });

    it('are replaced by Torpor’s for a client that names the sandbox in Torpor’s way', async () => {
      const headers = { 'Torpor-Sandbox': sandbox.bare, 'Torpor-Port': '3000' };
      const answer = await ask(world.port, '127.0.0.1', { headers });
      expect([answer.status, answer.json()]).toMatchObject([410, { error: { code: 'killed' } }]);
    });
  });

  it('a private preview without its token: 403', async () => {
    await begin({ preview: 'private' });
    expect(await theirs()).toMatchObject({ status: 403 });
    expect((await theirs()).json()).toMatchObject({ code: 403 });
  });
});
