import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../testing/test-server.ts';

let server: TestServer;
const mine: Record<string, string> = {};
beforeAll(async () => {
  server = await testServer();
  mine['sandbox'] = await server.create({ name: 'mine', metadata: { a: 'b' } });
  const paused = (await server.ask('POST', `/v1/sandboxes/${mine['sandbox']}/pause`)).json();
  mine['checkpoint'] = paused.checkpoint.id;
  mine['operation'] = paused.operation.id;
  const template = { name: 'mine', from: paused.checkpoint.id };
  mine['template'] = (await server.ask('POST', '/v1/templates', { body: template })).json().name;
  mine['key'] = (await server.ask('POST', '/v1/keys', { body: { name: 'k' } })).json().id;
});
afterAll(() => server.dispose());

const stream = { accept: 'text/event-stream' };

describe('a thing of another organisation', () => {
  it.each([
    ['GET', '/v1/sandboxes/{sandbox}'],
    ['DELETE', '/v1/sandboxes/{sandbox}'],
    ['POST', '/v1/sandboxes/{sandbox}/pause', {}],
    ['POST', '/v1/sandboxes/{sandbox}/resume', {}],
    ['POST', '/v1/sandboxes/{sandbox}/fork', {}],
    ['POST', '/v1/sandboxes/{sandbox}/timeout', { timeoutSeconds: 5 }],
    ['POST', '/v1/sandboxes/{sandbox}/retention', { deletePausedAfterSeconds: 5 }],
    ['POST', '/v1/sandboxes/{sandbox}/checkpoints', {}],
    ['GET', '/v1/sandboxes/{sandbox}/checkpoints'],
    ['POST', '/v1/sandboxes/{sandbox}/rollback', { checkpointId: '{checkpoint}' }],
    ['POST', '/v1/sandboxes/{sandbox}/exec', { command: 'true' }],
    ['POST', '/v1/sandboxes/{sandbox}/exec', { command: 'true', background: true }],
    ['POST', '/v1/sandboxes/{sandbox}/exec', { command: 'true' }, stream],
    ['GET', '/v1/sandboxes/{sandbox}/files?path=a'],
    ['PUT', '/v1/sandboxes/{sandbox}/files?path=a'],
    ['DELETE', '/v1/sandboxes/{sandbox}/files?path=a'],
    ['GET', '/v1/sandboxes/{sandbox}/processes'],
    ['GET', '/v1/sandboxes/{sandbox}/events'],
    ['GET', '/v1/sandboxes/{sandbox}/events', undefined, stream],
    ['GET', '/v1/checkpoints/{checkpoint}'],
    ['POST', '/v1/checkpoints/{checkpoint}/verify', {}],
    ['DELETE', '/v1/checkpoints/{checkpoint}'],
    ['POST', '/v1/sandboxes', { from: '{checkpoint}' }],
    ['POST', '/v1/templates', { name: 'x', from: '{checkpoint}' }],
    ['GET', '/v1/templates/{template}'],
    ['DELETE', '/v1/templates/{template}'],
    ['POST', '/v1/sandboxes', { template: '{template}' }],
    ['GET', '/v1/operations/{operation}'],
    ['DELETE', '/v1/keys/{key}'],
  ] as const)(
    'is not found: %s %s (R104)',
    async (method, path, body?: object, headers?: Record<string, string>) => {
      const filled = (text: string) => text.replace(/\{(\w+)\}/g, (_, name: string) => mine[name] ?? '');
      const response = await server.ask(method, filled(path), {
        key: server.keys.other,
        ...(body === undefined ? {} : { body: JSON.parse(filled(JSON.stringify(body))) }),
        ...(headers === undefined ? {} : { headers }),
      });
      expect([response.statusCode, errorIn(response).code]).toEqual([404, 'not_found']);
    },
  );

  it('is in no list', async () => {
    const key = server.keys.other;
    for (const path of [
      'sandboxes?metadata.a=b',
      'operations',
      `operations?sandboxId=${mine['sandbox']}`,
      'events',
    ]) {
      expect((await server.ask('GET', `/v1/${path}`, { key })).json().items).toEqual([]);
    }
    const templates = (await server.ask('GET', '/v1/templates', { key })).json().items;
    expect(templates.map(({ name }: { name: string }) => name)).toEqual(['base']);
    const keys = (await server.ask('GET', '/v1/keys', { key })).json().items;
    expect(keys.map(({ org }: { org: string }) => org)).toEqual(['other']);
  });

  it('was not changed', async () => {
    expect((await server.ask('GET', `/v1/sandboxes/${mine['sandbox']}`)).json()).toMatchObject({
      state: 'paused',
      checkpointId: mine['checkpoint'],
      generation: 1,
    });
  });

  it('may have the same name', async () => {
    expect(
      (await server.ask('POST', '/v1/sandboxes', { body: { name: 'mine' }, key: server.keys.other }))
        .statusCode,
    ).toBe(201);
  });
});

describe('without a key', () => {
  it.each(['/v1/sandboxes', '/v1/events', '/v1/keys', '/v1/nothing', '/metrics'])(
    '%s needs a key',
    async (path) => {
      const response = await server.ask('GET', path, {
        key: null,
        headers: { 'x-forwarded-for': '10.0.0.1' },
      });
      expect([response.statusCode, errorIn(response).code]).toEqual([401, 'unauthenticated']);
    },
  );

  it.each(['/health', '/v1/openapi.json', '/metrics'])('%s is open', async (path) => {
    expect((await server.ask('GET', path, { key: null })).statusCode).toBe(200);
  });
});
