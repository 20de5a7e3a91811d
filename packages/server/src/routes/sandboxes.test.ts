import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

const create = async (body: unknown = {}, key = server.keys.default) =>
  (await server.ask('POST', '/v1/sandboxes', { body, key })).json<{ id: string }>().id;

describe('a sandbox', () => {
  it('is created, shown in every state, paused, resumed and killed (R96)', async () => {
    const created = await server.ask('POST', '/v1/sandboxes', {
      body: { name: 'one', metadata: { a: '1' }, services: [{ name: 'web', command: 'serve', port: 3000 }] },
    });
    expect(created.statusCode).toBe(201);
    const { id } = created.json();
    expect(created.json()).toMatchObject({
      state: 'running',
      name: 'one',
      urls: { '3000': `http://3000-${id.slice(4)}.sbx.localhost:7676` },
    });

    const paused = await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    expect(paused.statusCode).toBe(200);
    expect(paused.json()).toMatchObject({
      sandbox: { state: 'paused' },
      checkpoint: { state: 'sealed' },
      operation: { kind: 'pause', outcome: 'succeeded' },
    });
    expect((await server.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {} })).json()).toMatchObject({
      checkpoint: { id: paused.json().checkpoint.id },
    });
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json()).toMatchObject({ state: 'paused' });

    const resumed = await server.ask('POST', `/v1/sandboxes/${id.slice(4)}/resume`, { body: { timeoutSeconds: 60 } });
    expect(resumed.json()).toMatchObject({
      sandbox: { id, state: 'running' },
      source: { checkpointId: paused.json().checkpoint.id, kind: 'memory' },
      lost: [],
    });

    const killed = await server.ask('DELETE', `/v1/sandboxes/${id}`);
    expect(killed.json()).toMatchObject({ id, state: 'killed' });
    expect((await server.ask('GET', `/v1/sandboxes/${id}`)).json()).toMatchObject({ state: 'killed' });
  });
});
