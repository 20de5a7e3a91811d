import { createHmac } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type AuditEntry, EVENT_TYPES, type EventView } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let receiver: Server;
let url: string;
/** What the receiver got, and how it answers. */
const received: { readonly headers: Record<string, string>; readonly body: string }[] = [];
let status = 200;

beforeAll(async () => {
  server = await testServer({ webhookNetworks: ['127.0.0.1/32'] });
  receiver = createServer(async (request, response) => {
    const chunks = await request.toArray();
    received.push({
      headers: request.headers as Record<string, string>,
      body: Buffer.concat(chunks).toString(),
    });
    response.writeHead(status).end();
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
});
afterAll(async () => {
  await server.dispose();
  receiver.close();
});

function isSignedBy(secret: string, { headers, body }: (typeof received)[number]): boolean {
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
  return headers['webhook-signature'] === `v1,${createHmac('sha256', key).update(signed).digest('base64')}`;
}

const post = (path: string, body: unknown = {}, key?: string) =>
  server.ask('POST', path, { body, ...(key === undefined ? {} : { key }) });

describe('the webhooks of an organisation', () => {
  it('are created with a secret that is shown once, deliver events, and are deleted', async () => {
    const headers = { 'idempotency-key': 'once' };
    const created = await server.ask('POST', '/v1/webhooks', { body: { url }, headers });
    expect(created.statusCode).toBe(201);
    const { id, secret } = created.json();
    const again = await server.ask('POST', '/v1/webhooks', { body: { url }, headers });
    expect(errorIn(again)).toMatchObject({ code: 'conflict', details: { webhookId: id } });
    expect((await server.ask('GET', `/v1/webhooks/${id}`)).json()).not.toHaveProperty('secret');

    const sandbox = await server.create();
    const { items: events } = (await server.ask('GET', `/v1/sandboxes/${sandbox}/events`)).json();
    await vi.waitFor(() => expect(received).toHaveLength(events.length), { timeout: 10_000 });
    expect(received.map(({ body }) => JSON.parse(body))).toEqual(events);
    for (const request of received) expect(isSignedBy(secret, request)).toBe(true);

    const [first] = events as EventView[];
    await post(`/v1/webhooks/${id}/replay`, { fromPosition: first?.position });
    await vi.waitFor(() => expect(received).toHaveLength(2 * events.length), { timeout: 10_000 });

    status = 500;
    const tested = await post(`/v1/webhooks/${id}/test`);
    expect(tested.json()).toMatchObject({ delivered: false, status: 500 });
    status = 200;
    expect((await server.ask('GET', `/v1/webhooks/${id}/dead-letters`)).json()).toMatchObject({ items: [] });
    expect((await server.ask('GET', '/v1/webhooks')).json().items).toMatchObject([{ id, url, dead: 0 }]);
    expect((await server.ask('DELETE', `/v1/webhooks/${id}`)).statusCode).toBe(200);
    expect((await server.ask('GET', `/v1/webhooks/${id}`)).statusCode).toBe(404);
  });

  it('cannot be managed with the key of a user', async () => {
    expect(errorIn(await post('/v1/webhooks', { url }, server.keys.user))).toMatchObject({
      code: 'forbidden',
    });
  });

  it.each([
    ['another protocol', 'ftp://example.com/'],
    ['a password', 'https://ada:secret@example.com/'],
    ['no address', 'hooks'],
  ])('are refused for a URL with %s', async (_, bad) => {
    expect(errorIn(await post('/v1/webhooks', { url: bad }))).toMatchObject({ code: 'invalid_request' });
  });

  it('are refused for a private address that the operator did not allow', async () => {
    expect(errorIn(await post('/v1/webhooks', { url: 'http://192.168.0.1/' }))).toMatchObject({
      code: 'forbidden',
    });
  });

  it('are refused for an unknown event type', async () => {
    const events = ['sandbox.exploded'];
    expect(errorIn(await post('/v1/webhooks', { url, events }))).toMatchObject({ code: 'invalid_request' });
    expect(EVENT_TYPES).not.toContain(events[0]);
  });
});

describe('the audit', () => {
  it('names the key and user of each change, also after the sandbox has ended', async () => {
    const sandbox = await server.create({}, server.keys.user);
    await post(`/v1/sandboxes/${sandbox}/timeout`, { timeoutSeconds: 60 });
    await server.ask('DELETE', `/v1/sandboxes/${sandbox}`);
    const entries: AuditEntry[] = (await server.ask('GET', '/v1/audit?limit=1000')).json().items;
    const { items: keys } = (await server.ask('GET', '/v1/keys')).json();
    const keyNamed = (name: string) => keys.find((key: { name: string }) => key.name === name).id;
    const byUser = { keyId: keyNamed('of ada'), subject: 'ada' };
    const byService = { keyId: keyNamed('service'), subject: 'default' };
    const ofSandbox = entries.filter(({ sandboxId }) => sandboxId === sandbox);
    expect(ofSandbox.map(({ type, by, operation }) => [type, by, operation?.kind])).toEqual([
      ['sandbox.created', byUser, 'create'],
      ['sandbox.started', byUser, 'create'],
      ['lifetime.set', byService, undefined],
      ['sandbox.killing', byService, 'kill'],
      ['sandbox.killed', byService, 'kill'],
    ]);
  });

  it('cannot be read with the key of a user, or of another organisation', async () => {
    expect((await server.ask('GET', '/v1/audit', { key: server.keys.user })).statusCode).toBe(403);
    expect((await server.ask('GET', '/v1/audit', { key: server.keys.other })).json().items).toEqual([]);
  });
});
