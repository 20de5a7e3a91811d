import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type TestServer, testServer } from '../../testing/test-server.ts';

const VALUE = 'sk-very-secret';
const BODY = { host: 'api.example.com', header: 'Authorization', prefix: 'Bearer ', value: VALUE };
let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

const put = (name: string, body: unknown, key?: string) =>
  server.ask('PUT', `/v1/secrets/${name}`, { body, ...(key === undefined ? {} : { key }) });

describe('/v1/secrets', () => {
  it('sets, lists, shows and deletes secrets, and never returns or logs a value', async () => {
    const set = await put('KEY', BODY);
    expect(set.statusCode, set.body).toBe(200);
    const answers = [
      set,
      await put('KEY', { ...BODY, methods: ['GET'], path: '/v1' }),
      await server.ask('GET', '/v1/secrets'),
      await server.ask('GET', '/v1/secrets/KEY'),
      await server.ask('DELETE', '/v1/secrets/KEY'),
    ];
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 200, 200, 200, 200]);
    expect(answers[2]?.json().items).toMatchObject([{ name: 'KEY', methods: ['GET'], path: '/v1' }]);
    expect((await server.ask('GET', '/v1/secrets/KEY')).statusCode).toBe(404);
    expect(answers.map(({ body }) => body).join()).not.toContain(VALUE);
    expect(server.log.join()).not.toContain(VALUE);
  });

  it.each([
    ['a line break in the value', { ...BODY, value: `${VALUE}\r\nX-Other: y` }],
    ['an empty value', { ...BODY, value: '' }],
    ['a URL as the host', { ...BODY, host: 'https://api.example.com' }],
    ['an address as the host', { ...BODY, host: '*' }],
    ['every host', { ...BODY, host: '*.' }],
    ['a header of the connection', { ...BODY, header: 'Transfer-Encoding' }],
    ['the Host', { ...BODY, header: 'host' }],
    ['a header with a colon', { ...BODY, header: 'X: y' }],
    ['a path with dots', { ...BODY, path: '/v1/../admin' }],
    ['a method in small letters', { ...BODY, methods: ['get'] }],
    ['an unknown field', { ...BODY, hosts: ['x.example.com'] }],
  ])('refuses %s, changes nothing, and does not repeat the value', async (_, body) => {
    const answer = await put('BAD', body);
    expect(answer.statusCode, answer.body).toBe(400);
    expect(answer.body).not.toContain(VALUE);
    expect((await server.ask('GET', '/v1/secrets/BAD')).statusCode).toBe(404);
  });

  it('belongs to one organisation: another one has its own under the same name', async () => {
    await put('SHARED', BODY);
    await put('SHARED', { ...BODY, host: 'other.example.com' }, server.keys.other);
    expect((await server.ask('GET', '/v1/secrets/SHARED')).json().host).toBe('api.example.com');
    await server.ask('DELETE', '/v1/secrets/SHARED', { key: server.keys.other });
    expect((await server.ask('GET', '/v1/secrets/SHARED')).statusCode).toBe(200);
  });

  it('is for service keys', async () => {
    for (const [method, path] of [
      ['GET', ''],
      ['GET', '/KEY'],
      ['PUT', '/KEY'],
      ['DELETE', '/KEY'],
    ] as const) {
      const body = method === 'PUT' ? { body: BODY } : {};
      const answer = await server.ask(method, `/v1/secrets${path}`, { key: server.keys.user, ...body });
      expect(answer.statusCode, `${method} ${path}`).toBe(403);
    }
  });

  it('keeps an organisation from being deleted while it has some', async () => {
    const made = await server.ask('POST', '/v1/orgs', { body: { name: 'with-secrets' } });
    expect(made.statusCode, made.body).toBeLessThan(300);
    const created = await server.ask('POST', '/v1/keys?orgId=with-secrets', { body: { name: 'k' } });
    const { key, id } = created.json();
    expect((await put('KEY', BODY, key)).statusCode).toBe(200);
    await server.ask('DELETE', `/v1/keys/${id}?orgId=with-secrets`);
    const refused = await server.ask('DELETE', '/v1/orgs/with-secrets');
    expect(refused.json().error).toMatchObject({ code: 'conflict', details: { secrets: 1, keys: 0 } });
  });
});

describe('a sandbox', () => {
  it('names only secrets that exist', async () => {
    const network = { secrets: ['NO_SUCH'] };
    const refused = await server.ask('POST', '/v1/sandboxes', { body: { network } });
    expect(refused.json().error).toMatchObject({
      code: 'not_found',
      details: { secrets: ['NO_SUCH'] },
    });
  });
});
