import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiDocument, routesOf } from '../../testing/document-requests.ts';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let sandbox: string;
beforeAll(async () => {
  server = await testServer();
  sandbox = await server.create();
});
afterAll(() => server.dispose());

describe('the query parameter orgId', () => {
  it.each(['/v1/sandboxes', '/v1/events', '/v1/operations', '/v1/templates', '/v1/runtimes', '/v1/keys'])(
    'is accepted when it names the organisation of the key: GET %s (R104)',
    async (path) => {
      const plain = (await server.ask('GET', path)).json();
      const named = await server.ask('GET', `${path}?orgId=default`);
      expect([named.statusCode, named.json()]).toEqual([200, plain]);
    },
  );

  it('is refused when it names another, and nothing is done (R104)', async () => {
    const before = await server.world.db.query('SELECT position FROM ledger_head');
    const asked = [
      await server.ask('GET', '/v1/sandboxes?orgId=other'),
      await server.ask('GET', `/v1/sandboxes/${sandbox}?orgId=other`),
      await server.ask('POST', '/v1/sandboxes?orgId=other', { body: {} }),
      await server.ask('POST', `/v1/sandboxes/${sandbox}/pause?orgId=org_2u8RgDTwcZWrZrZ3sZh24T5FCtz`, {
        body: {},
      }),
      await server.ask('DELETE', `/v1/sandboxes/${sandbox}?orgId=other`),
      await server.ask('GET', '/v1/keys?orgId=default', { key: server.keys.other }),
    ];
    expect(asked.map((answer) => [answer.statusCode, errorIn(answer).code])).toEqual(
      Array(6).fill([403, 'forbidden']),
    );
    expect(errorIn(asked[0] as never)).toMatchObject({
      message: 'The key belongs to "default" and not to "other".',
      details: { orgId: 'other', keyOrgId: 'default' },
    });
    expect(await server.world.db.query('SELECT position FROM ledger_head')).toEqual(before);
  });

  it.each(['orgId=', `orgId=${'x'.repeat(201)}`, 'orgId=default&orgId=other', 'orgId=%00'])(
    'is refused when it is invalid: %s',
    async (query) => {
      const answer = await server.ask('GET', `/v1/sandboxes?${query}`);
      expect([answer.statusCode, errorIn(answer).code]).toEqual([400, 'invalid_request']);
    },
  );

  it('is in the OpenAPI document of every route that needs a key, once', async () => {
    const document: ApiDocument = (await server.ask('GET', '/v1/openapi.json')).json();
    for (const { path, operation } of routesOf(document)) {
      const named = (operation.parameters ?? []).filter(({ name }) => name === 'orgId');
      expect(named, path).toHaveLength(operation.security === undefined ? 1 : 0);
    }
  });
});
