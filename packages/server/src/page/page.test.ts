import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { testGateway } from '../../testing/test-gateway.ts';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';
import { createKey, revokeKey } from '../keys/manage.ts';

const file = {
  type: 'text/javascript; charset=utf-8',
  bytes: Buffer.from('plain'),
  gzip: Buffer.from('gzip'),
  br: Buffer.from('br'),
};
const files = { script: 'main.js', style: 'main.css', icon: 'icon.svg', files: new Map([['main.js', file]]) };

let server: TestServer;
let isBroken = false;
beforeAll(async () => {
  server = await testServer({
    wrapApp: (ctx) => ({
      gateway: testGateway(ctx),
      page: async () => {
        if (isBroken) throw new Error('<b>esbuild</b> is missing');
        return files;
      },
    }),
  });
});
afterAll(() => server.dispose());

const OWN = { host: 'localhost:7676', origin: 'http://localhost:7676', 'sec-fetch-site': 'same-origin' };
const BROWSER = { host: 'localhost:7676', accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };

interface Halves {
  readonly cookie: string;
  readonly token: string;
}

async function signIn(body: unknown = { key: server.keys.default }): Promise<Halves> {
  const answer = await server.ask('POST', '/v1/page/session', { key: null, headers: OWN, body });
  expect(answer.statusCode).toBe(201);
  const cookie = String(answer.headers['set-cookie']).split(';')[0] ?? '';
  return { cookie, token: answer.json<{ token: string }>().token };
}

const asked = (
  { cookie, token }: Partial<Halves>,
  headers: Record<string, string> = OWN,
  method: 'GET' | 'POST' = 'GET',
  url = '/v1/identity',
) =>
  server.ask(method, url, {
    key: token ?? null,
    headers: { ...(cookie === undefined ? {} : { cookie }), ...headers },
    ...(method === 'POST' ? { body: {} } : {}),
  });

describe('GET /', () => {
  it('is the page for a browser, without a key', async () => {
    const answer = await server.ask('GET', '/', { key: null, headers: BROWSER });
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(answer.body).toContain('src="/page/main.js"');
  });

  it('is an error for programs, as every other unknown path', async () => {
    expect((await server.ask('GET', '/', { key: null })).statusCode).toBe(401);
    expect((await server.ask('GET', '/')).statusCode).toBe(404);
  });

  it('allows no foreign script, no eval, no frame around it, and frames of previews only', async () => {
    const { headers } = await server.ask('GET', '/', { key: null, headers: BROWSER });
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'; script-src 'self';");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).toContain('frame-src http://*.sbx.localhost;');
    expect(policy).not.toMatch(/unsafe-inline|unsafe-eval/);
    expect(headers['cross-origin-opener-policy']).toBe('same-origin');
  });

  it('is refused under an unknown host name', async () => {
    const answer = await server.ask('GET', '/', { key: null, headers: { ...BROWSER, host: 'evil.example' } });
    expect(answer.statusCode).toBe(403);
  });

  it('says why when its files cannot be built, and escapes the reason', async () => {
    isBroken = true;
    const answer = await server.ask('GET', '/', { key: null, headers: BROWSER });
    isBroken = false;
    expect(answer.statusCode).toBe(503);
    expect(answer.body).toContain('The page could not be built');
    expect(answer.body).not.toContain('<b>');
  });

  it('has its files compressed, and cached for ever', async () => {
    const ask = (encoding: string) =>
      server.ask('GET', '/page/main.js', { key: null, headers: { 'accept-encoding': encoding } });
    expect((await ask('gzip, deflate, br')).body).toBe('br');
    expect((await ask('gzip')).body).toBe('gzip');
    expect((await ask('identity')).body).toBe('plain');
    expect((await ask('br;q=0')).headers['cache-control']).toContain('immutable');
    expect((await server.ask('GET', '/page/other.js', { key: null })).statusCode).toBe(404);
  });
});

describe('sign-in at the page', () => {
  it('sets a cookie that scripts cannot read and other sites cannot send', async () => {
    const answer = await server.ask('POST', '/v1/page/session', {
      key: null,
      headers: OWN,
      body: { key: server.keys.default },
    });
    const cookie = String(answer.headers['set-cookie']);
    expect(cookie).toMatch(/^torpor-page=\S+; Path=\/; Max-Age=604800; HttpOnly; SameSite=Strict$/);
    expect(cookie).not.toContain(server.keys.default);
    const secure = await server.ask('POST', '/v1/page/session', {
      key: null,
      headers: { ...OWN, 'x-forwarded-proto': 'https' },
      body: { key: server.keys.default },
    });
    expect(String(secure.headers['set-cookie'])).toMatch(/^__Host-torpor-page=.*; Secure$/);
  });

  it('acts with the rights of the key', async () => {
    expect((await asked(await signIn())).json()).toMatchObject({ org: 'default', operator: true });
    expect((await asked(await signIn({ key: server.keys.user }))).json()).toMatchObject({
      subject: 'ada',
      service: false,
      operator: false,
    });
  });

  it('is refused with a wrong key', async () => {
    const answer = await server.ask('POST', '/v1/page/session', {
      key: null,
      headers: OWN,
      body: { key: 'f'.repeat(64) },
    });
    expect(answer.statusCode).toBe(401);
    expect(answer.headers['set-cookie']).toBeUndefined();
  });

  it('needs both halves: neither the cookie nor the token alone is enough', async () => {
    const mine = await signIn();
    const other = await signIn({ key: server.keys.other });
    const refused: Partial<Halves>[] = [
      { cookie: mine.cookie },
      { token: mine.token },
      { cookie: other.cookie, token: mine.token },
      { cookie: mine.cookie.replace('default', 'other'), token: mine.token },
      { cookie: `${mine.cookie}0`, token: mine.token },
    ];
    for (const halves of refused) expect((await asked(halves)).statusCode).toBe(401);
    expect((await asked(mine)).statusCode).toBe(200);
  });

  it('works beside a cookie of the same name that another host has set', async () => {
    const mine = await signIn();
    const other = await signIn({ key: server.keys.other });
    const both = await asked({ cookie: `${other.cookie}; ${mine.cookie}`, token: mine.token });
    expect(both.json()).toMatchObject({ org: 'default' });
  });

  it('ends when its key is revoked', async () => {
    const key = await createKey(server.ctx, 'default', { name: 'short' });
    const halves = await signIn({ key: key.key });
    expect((await asked(halves)).statusCode).toBe(200);
    await revokeKey(server.ctx, 'default', key.id);
    expect((await asked(halves)).statusCode).toBe(401);
  });

  it('is ended by sign-out', async () => {
    const answer = await server.ask('DELETE', '/v1/page/session', { key: null, headers: OWN });
    expect(answer.statusCode).toBe(204);
    expect(answer.headers['set-cookie']).toContain('Max-Age=0');
  });
});

describe('a request of another site', () => {
  it.each([
    ['of another site', { ...OWN, 'sec-fetch-site': 'cross-site', origin: 'http://evil.example' }],
    ['of a preview', { ...OWN, 'sec-fetch-site': 'same-site', origin: 'http://3000-x.sbx.localhost' }],
    ['of an old browser', { host: OWN.host, origin: 'http://evil.example' }],
    ['of another port of this machine', { host: OWN.host, origin: 'http://localhost:3000' }],
    ['without any origin', { host: OWN.host }],
    ['with an opaque origin', { host: OWN.host, origin: 'null' }],
  ])('%s changes nothing, even with cookie and token', async (_, headers) => {
    const halves = await signIn();
    expect((await asked(halves, headers, 'POST', '/v1/sandboxes')).statusCode).toBe(401);
    const signInElsewhere = await server.ask('POST', '/v1/page/session', {
      key: null,
      headers,
      body: { key: server.keys.default },
    });
    expect(errorIn(signInElsewhere).code).toBe('forbidden');
  });

  it('from the page itself over plain HTTP of another machine is accepted', async () => {
    const halves = await signIn();
    const headers = { host: '192.168.1.5:7676', origin: 'http://192.168.1.5:7676' };
    expect((await asked(halves, headers, 'POST', '/v1/page/links')).statusCode).toBe(201);
  });

  it('cannot use the path form of a preview with a page session', async () => {
    const id = await server.create();
    const { token, cookie } = await signIn();
    const url = await server.listen();
    const response = await fetch(`${url}/v1/sandboxes/${id}/ports/3000/`, {
      headers: { authorization: `Bearer ${token}`, cookie },
    });
    expect(response.status).toBe(401);
  });
});

describe('a read-only key', () => {
  it('changes nothing, whether a program or the page uses it', async () => {
    const id = await server.create();
    const { key } = await createKey(server.ctx, 'default', { name: 'reader', readOnly: true });
    const halves = await signIn({ key });
    expect((await asked(halves)).json()).toMatchObject({ readOnly: true });
    expect((await asked(halves, OWN, 'POST', `/v1/sandboxes/${id}/pause`)).statusCode).toBe(403);
    expect((await server.ask('GET', `/v1/sandboxes/${id}`, { key })).statusCode).toBe(200);
    expect((await server.ask('POST', `/v1/sandboxes/${id}/pause`, { key })).statusCode).toBe(403);
    expect((await server.ask('DELETE', `/sandboxes/${id.slice(4)}`, { key })).statusCode).toBe(403);
    const detail = await server.ask('GET', `/sandboxes/${id.slice(4)}`, { key });
    expect(detail.statusCode).toBe(200);
    expect(detail.body).not.toContain('envdAccessToken');
  });

  it('cannot send requests to an app', async () => {
    const id = await server.create();
    const { key } = await createKey(server.ctx, 'default', { name: 'reader', readOnly: true });
    const { port } = server.app.server.server.address() as { port: number };
    const response = await fetch(`http://127.0.0.1:${port}/v1/sandboxes/${id}/ports/3000/`, {
      headers: { 'x-api-key': key },
    });
    expect(response.status).toBe(403);
  });
});

describe('a session that may only look', () => {
  it('reads everything and changes nothing', async () => {
    const id = await server.create();
    const halves = await signIn({ key: server.keys.default, readOnly: true });
    expect((await asked(halves)).json()).toMatchObject({ operator: true, readOnly: true });
    expect((await asked(halves, OWN, 'GET', `/v1/sandboxes/${id}`)).statusCode).toBe(200);
    for (const path of ['pause', 'resume', 'exec', 'fork', 'checkpoints', 'timeout', 'preview-links']) {
      const answer = await asked(halves, OWN, 'POST', `/v1/sandboxes/${id}/${path}`);
      expect([path, errorIn(answer).code]).toEqual([path, 'forbidden']);
    }
    for (const path of ['/v1/sandboxes', '/v1/keys', '/v1/page/links', '/v1/admin/fsck', '/sandboxes']) {
      expect([path, (await asked(halves, OWN, 'POST', path)).statusCode]).toEqual([path, 403]);
    }
    expect((await asked(halves, OWN, 'GET', `/v1/sandboxes/${id}/terminal`)).statusCode).toBe(403);
  });

  it('wakes nothing by reading a file', async () => {
    const id = await server.create();
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    const halves = await signIn({ key: server.keys.default, readOnly: true });
    const answer = await asked(halves, OWN, 'GET', `/v1/sandboxes/${id}/files?path=~`);
    expect(errorIn(answer).code).toBe('conflict');
    const view = await asked(halves, OWN, 'GET', `/v1/sandboxes/${id}`);
    expect(view.json()).toMatchObject({ state: 'paused', generation: 1 });
  });

  it('cannot become another: its rights are signed', async () => {
    const { cookie, token } = await signIn({ key: server.keys.default, readOnly: true });
    expect((await asked({ cookie: cookie.replace('.read.', '.full.'), token })).statusCode).toBe(401);
  });
});

describe('a one-time link', () => {
  it('may be for looking only', async () => {
    const made = await server.ask('POST', '/v1/page/links', { headers: OWN, body: { readOnly: true } });
    const link = made.json<{ url: string }>().url.split('#sign-in=')[1];
    expect((await asked(await signIn({ link }))).json()).toMatchObject({ readOnly: true });
  });

  it('signs one browser in, once, with the key that made it', async () => {
    const made = await server.ask('POST', '/v1/page/links', {
      key: server.keys.other,
      headers: OWN,
      body: {},
    });
    const { url } = made.json<{ url: string }>();
    const [address, link] = url.split('#sign-in=');
    expect(address).toBe('http://localhost:7676/');
    expect((await asked(await signIn({ link }))).json()).toMatchObject({ org: 'other' });
    const again = await server.ask('POST', '/v1/page/session', { key: null, headers: OWN, body: { link } });
    expect(errorIn(again)).toMatchObject({ code: 'unauthenticated' });
  });
});
