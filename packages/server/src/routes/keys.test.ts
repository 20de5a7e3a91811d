import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

describe('keys', () => {
  it('are created, listed without the secret, used and revoked', async () => {
    const made = await server.ask('POST', '/v1/keys', {
      body: { name: 'ci', subject: 'robot', expiresInSeconds: 60 },
    });
    expect(made.statusCode).toBe(201);
    const { key, id } = made.json();
    expect((await server.ask('GET', '/v1/sandboxes', { key })).statusCode).toBe(200);
    const list = await server.ask('GET', '/v1/keys');
    expect(list.json().items).toContainEqual(expect.objectContaining({ id, name: 'ci', subject: 'robot' }));
    expect(list.body).not.toContain(key);
    const revoked = await server.ask('DELETE', `/v1/keys/${id}`);
    expect(revoked.json()).toMatchObject({ id, revokedAt: expect.any(Number) });
    expect((await server.ask('GET', '/v1/sandboxes', { key })).statusCode).toBe(401);
  });

  it('are managed only by service keys', async () => {
    const key = server.keys.user;
    const asked = [
      await server.ask('GET', '/v1/keys', { key }),
      await server.ask('POST', '/v1/keys', { key, body: { name: 'x' } }),
      await server.ask('DELETE', '/v1/keys/key_aaaaaaaaaaaaaaaaaaaa', { key }),
    ];
    expect(asked.map((response) => [response.statusCode, errorIn(response).code])).toEqual(
      Array(3).fill([403, 'forbidden']),
    );
  });

  it('are shown once: a repeated request gets an error and makes no second key', async () => {
    const headers = { 'idempotency-key': 'key-1' };
    const body = { name: 'once' };
    const twins = await Promise.all([1, 2].map(() => server.ask('POST', '/v1/keys', { body, headers })));
    const later = await server.ask('POST', '/v1/keys', { body, headers });
    expect(twins.map(({ statusCode }) => statusCode).sort()).toEqual([201, 409]);
    expect([later.statusCode, errorIn(later).code]).toEqual([409, 'conflict']);
    const { items } = (await server.ask('GET', '/v1/keys')).json();
    expect(items.filter(({ name }: { name: string }) => name === 'once')).toHaveLength(1);
  });
});
