import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

const DAY = 86_400;
const DAY_MS = DAY * 1_000;

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

const get = async (id: string) => (await server.ask('GET', `/v1/sandboxes/${id}`)).json();
const setRetention = (id: string, body: unknown) =>
  server.ask('POST', `/v1/sandboxes/${id}/retention`, { body });
const setOrg = (deletePausedAfterSeconds: unknown) =>
  server.ask('PATCH', '/v1/orgs/default', { body: { deletePausedAfterSeconds } });

describe('the retention of a sandbox', () => {
  it('is shown with the time of the deletion while the sandbox is paused, and can be changed', async () => {
    const id = await server.create({ deletePausedAfterSeconds: 30 * DAY });
    expect(await get(id)).toMatchObject({ deletePausedAfterSeconds: 30 * DAY, deletesAt: null });
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    const { deletesAt } = await get(id);
    expect(deletesAt).toBeGreaterThan(Date.now() + 29 * DAY_MS);

    const changed = await setRetention(id, { deletePausedAfterSeconds: null });
    expect(changed.statusCode).toBe(200);
    expect(changed.json()).toMatchObject({ deletePausedAfterSeconds: null, deletesAt: null });
    const { items } = (await server.ask('GET', `/v1/sandboxes/${id}/events`)).json();
    expect(items.at(-1)).toMatchObject({ type: 'retention.set', data: { deletePausedAfterSeconds: null } });
  });

  it.each([0, -1, 1.5, '30d', 10 ** 12, undefined])('refuses %j and changes nothing', async (value) => {
    const id = await server.create({ deletePausedAfterSeconds: 5 });
    const answer = await setRetention(id, { deletePausedAfterSeconds: value });
    expect([answer.statusCode, errorIn(answer).code]).toEqual([400, 'invalid_request']);
    expect(await get(id)).toMatchObject({ deletePausedAfterSeconds: 5 });
  });

  it('comes from the organisation unless the sandbox sets its own, and forks inherit it', async () => {
    const plain = await server.create();
    const own = await server.create({ deletePausedAfterSeconds: 7 * DAY });
    expect((await setOrg(90 * DAY)).json()).toMatchObject({ deletePausedAfterSeconds: 90 * DAY });
    expect((await get(plain)).deletePausedAfterSeconds).toBe(90 * DAY);
    expect((await get(own)).deletePausedAfterSeconds).toBe(7 * DAY);
    const forked = await server.ask('POST', `/v1/sandboxes/${own}/fork`, { body: {} });
    expect(forked.json().items[0].sandbox.deletePausedAfterSeconds).toBe(7 * DAY);
    await setRetention(own, { deletePausedAfterSeconds: 'default' });
    expect((await get(own)).deletePausedAfterSeconds).toBe(90 * DAY);

    const quotas = await server.ask('PATCH', '/v1/orgs/default', { body: { quotas: { sandboxes: 1_000 } } });
    expect(quotas.json().deletePausedAfterSeconds).toBe(90 * DAY);
    expect((await setOrg('default')).json().deletePausedAfterSeconds).toBe('default');
    expect((await get(plain)).deletePausedAfterSeconds).toBeNull();
  });

  it('of an organisation is set only with operator keys (R104)', async () => {
    const answer = await server.ask('PATCH', '/v1/orgs/other', {
      key: server.keys.other,
      body: { deletePausedAfterSeconds: 1 },
    });
    expect(answer.statusCode).toBe(403);
  });
});
