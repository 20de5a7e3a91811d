import type { LightMyRequestResponse } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

const outcome = (answer: LightMyRequestResponse) => [answer.statusCode, errorIn(answer).code];
const make = (name: string, more: object = {}) => server.ask('POST', '/v1/orgs', { body: { name, ...more } });
const keyOf = async (org: string): Promise<{ id: string; key: string }> => {
  const made = await server.ask('POST', `/v1/keys?orgId=${org}`, { body: { name: 'first' } });
  expect(made.statusCode, made.body).toBe(201);
  return made.json();
};

describe('organisations', () => {
  it('are created, listed and read with an operator key (R104)', async () => {
    const made = await make('acme', { quotas: { sandboxes: 5 } });
    expect(made.statusCode).toBe(201);
    expect(made.json()).toMatchObject({
      id: 'acme',
      quotas: { sandboxes: 5, runningSandboxes: null, memoryMb: null, diskMb: null },
      used: { sandboxes: 0, queuedBuilds: 0 },
    });
    const { items } = (await server.ask('GET', '/v1/orgs')).json();
    expect(items.map(({ id }: { id: string }) => id)).toEqual(['acme', 'default', 'other']);
    const page = (await server.ask('GET', '/v1/orgs?limit=1&cursor=acme')).json();
    expect(page).toMatchObject({ items: [{ id: 'default' }], nextCursor: 'default' });
    expect((await server.ask('GET', '/v1/orgs/acme')).json()).toMatchObject({ id: 'acme' });
    expect(outcome(await server.ask('GET', '/v1/orgs/nobody'))).toEqual([404, 'not_found']);
  });

  it.each(['', 'Acme', '-a', 'a-', 'a b', 'a/b', 'é', 'x'.repeat(41)])(
    'have names that are slugs: %j is refused',
    async (name) => {
      expect(outcome(await make(name))).toEqual([400, 'invalid_request']);
    },
  );

  it('have unique names', async () => {
    expect((await make('twice')).statusCode).toBe(201);
    expect(outcome(await make('twice'))).toEqual([409, 'conflict']);
  });

  it('repeat the answer to the same idempotency key', async () => {
    const ask = () =>
      server.ask('POST', '/v1/orgs', { body: { name: 'keyed' }, headers: { 'idempotency-key': 'o-1' } });
    const first = await ask();
    const again = await ask();
    expect([first.statusCode, again.json()]).toEqual([201, first.json()]);
  });

  it('are managed only with operator keys; any other key sees its own (R104)', async () => {
    for (const key of [server.keys.other, server.keys.user]) {
      const asked = [
        await server.ask('POST', '/v1/orgs', { key, body: { name: 'sly' } }),
        await server.ask('PATCH', '/v1/orgs/other', { key, body: { quotas: { sandboxes: null } } }),
        await server.ask('DELETE', '/v1/orgs/other', { key }),
        await server.ask('GET', '/v1/orgs/acme', { key }),
        await server.ask('GET', '/v1/orgs/nobody', { key }),
      ];
      expect(asked.map(outcome)).toEqual(Array(5).fill([403, 'forbidden']));
    }
    const key = server.keys.other;
    expect((await server.ask('GET', '/v1/orgs', { key })).json().items).toMatchObject([{ id: 'other' }]);
    expect((await server.ask('GET', '/v1/orgs/other', { key })).json()).toMatchObject({ id: 'other' });
  });

  it('are deleted when they are empty, and their names cannot be used again (R104)', async () => {
    await make('brief');
    const { id, key } = await keyOf('brief');
    const sandbox = await server.create({}, key);
    const refused = await server.ask('DELETE', '/v1/orgs/brief');
    expect(outcome(refused)).toEqual([409, 'conflict']);
    expect(errorIn(refused).details).toMatchObject({ sandboxes: 1, keys: 1, templates: 0 });
    await server.ask('DELETE', `/v1/sandboxes/${sandbox}`, { key });
    expect((await server.ask('DELETE', `/v1/keys/${id}?orgId=brief`)).statusCode).toBe(200);
    expect((await server.ask('DELETE', '/v1/orgs/brief')).statusCode).toBe(200);
    expect(outcome(await server.ask('GET', '/v1/orgs/brief'))).toEqual([404, 'not_found']);
    expect(outcome(await make('brief'))).toEqual([409, 'conflict']);
    expect(outcome(await server.ask('POST', '/v1/keys?orgId=brief', { body: { name: 'x' } }))).toEqual([
      404,
      'not_found',
    ]);
    expect(outcome(await server.ask('DELETE', '/v1/orgs/default'))).toEqual([409, 'conflict']);
  });
});

describe('keys of another organisation', () => {
  it('are created, listed and revoked with an operator key (R104)', async () => {
    await make('guest');
    const { id, key } = await keyOf('guest');
    const sandbox = await server.create({}, key);
    expect(outcome(await server.ask('GET', `/v1/sandboxes/${sandbox}`))).toEqual([404, 'not_found']);
    expect((await server.ask('GET', '/v1/keys?orgId=guest')).json().items).toMatchObject([{ id }]);
    expect((await server.ask('GET', '/v1/keys', { key })).json().items).toMatchObject([
      { id, org: 'guest', operator: false },
    ]);
    expect(outcome(await server.ask('DELETE', `/v1/keys/${id}`, { key }))).toEqual([409, 'conflict']);
    expect((await server.ask('DELETE', `/v1/keys/${id}?orgId=guest`)).statusCode).toBe(200);
    expect((await server.ask('GET', '/v1/sandboxes', { key })).statusCode).toBe(401);
  });

  it('cannot become operator keys, and no other key can create one (R104)', async () => {
    const body = { name: 'x', operator: true };
    expect(outcome(await server.ask('POST', '/v1/keys?orgId=other', { body }))).toEqual([
      400,
      'invalid_request',
    ]);
    const plain = (await server.ask('POST', '/v1/keys', { body: { name: 'plain' } })).json();
    expect(plain.operator).toBe(false);
    expect(outcome(await server.ask('POST', '/v1/keys', { key: plain.key, body }))).toEqual([
      403,
      'forbidden',
    ]);
    expect(outcome(await server.ask('POST', '/v1/keys', { body: { ...body, subject: 'ada' } }))).toEqual([
      400,
      'invalid_request',
    ]);
    const operator = (await server.ask('POST', '/v1/keys', { body })).json();
    expect((await server.ask('GET', '/v1/orgs/other', { key: operator.key })).statusCode).toBe(200);
  });

  it('that are operator keys can be revoked only by operator keys, and never the last one (R104)', async () => {
    const { items } = (await server.ask('GET', '/v1/keys')).json();
    const operators = items.filter(({ operator }: { operator: boolean }) => operator);
    const own = operators.find(({ name }: { name: string }) => name === 'service');
    const plain = (await server.ask('POST', '/v1/keys', { body: { name: 'plain' } })).json();
    const revoke = (id: string, key?: string) =>
      server.ask('DELETE', `/v1/keys/${id}`, key === undefined ? {} : { key });
    expect(outcome(await revoke(own.id, plain.key))).toEqual([403, 'forbidden']);
    for (const { id } of operators) if (id !== own.id) expect((await revoke(id)).statusCode).toBe(200);
    expect(outcome(await revoke(own.id))).toEqual([409, 'conflict']);
    expect((await revoke(plain.id)).statusCode).toBe(200);
  });
});
