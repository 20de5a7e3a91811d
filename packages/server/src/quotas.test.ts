import { FakeProvider } from '@torpor/builds/testing';
import { systemClock } from '@torpor/engine';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { testBuilds } from '../testing/test-builds.ts';
import { testGateway } from '../testing/test-gateway.ts';
import { errorIn, type TestServer, testServer } from '../testing/test-server.ts';

let server: TestServer;
let url: string;
beforeAll(async () => {
  server = await testServer({
    wrapApp: (ctx) => ({
      gateway: testGateway(ctx),
      builds: testBuilds(ctx, new FakeProvider(systemClock)),
    }),
  });
  url = await server.listen();
});
afterAll(() => server.dispose());

const setQuotas = async (quotas: object) => {
  const changed = await server.ask('PATCH', '/v1/orgs/other', { body: { quotas } });
  expect(changed.statusCode, changed.body).toBe(200);
};

describe('a quota of an organisation', () => {
  it('is answered with 429, its name, its limit and what is used (R104)', async () => {
    const key = server.keys.other;
    await server.create({}, key);
    await setQuotas({ runningSandboxes: 1 });
    const refused = await server.ask('POST', '/v1/sandboxes', { key, body: {} });
    expect(refused.statusCode).toBe(429);
    expect(errorIn(refused)).toMatchObject({
      code: 'quota_exceeded',
      message: 'The quota runningSandboxes of "other" is 1, and 1 are in use.',
      hint: expect.stringContaining('Pause or kill'),
      details: { quota: 'runningSandboxes', limit: 1, used: 1 },
    });
    expect((await server.ask('GET', '/v1/orgs/other', { key })).json()).toMatchObject({
      quotas: { runningSandboxes: 1 },
      used: { runningSandboxes: 1, sandboxes: 1 },
    });
    expect((await server.create()).length).toBeGreaterThan(0);
  });

  it("is answered in E2B's shape by E2B's API (R104)", async () => {
    const refused = await server.ask('POST', '/v2/sandboxes', {
      key: server.keys.other,
      body: { templateID: 'base' },
    });
    expect([refused.statusCode, refused.json()]).toEqual([
      429,
      { code: 429, message: expect.stringContaining('quota'), error_code: 'quota_exceeded' },
    ]);
  });

  it('is answered at once to a preview request that would wake a sandbox (R104)', async () => {
    const key = server.keys.other;
    await setQuotas({ runningSandboxes: null });
    const id = await server.create({}, key);
    await server.ask('POST', `/v1/sandboxes/${id}/pause`, { key, body: {} });
    await setQuotas({ runningSandboxes: 1 });
    const headers = { 'torpor-sandbox': id, 'torpor-port': '3000' };
    const visit = await fetch(url, { headers });
    expect(visit.status).toBe(429);
    expect(await visit.json()).toMatchObject({
      error: {
        code: 'quota_exceeded',
        details: { quota: 'runningSandboxes', limit: 1, used: 1, dispatched: false },
      },
    });
    const agent = { 'e2b-sandbox-id': id, 'e2b-sandbox-port': '49999' };
    expect((await fetch(url, { headers: agent })).status).toBe(429);
  });

  it('refuses a build when the queue is full (R21, R104)', async () => {
    await setQuotas({ runningBuilds: 1, queuedBuilds: 1 });
    const start = (project: string) =>
      server.ask('POST', '/api/generation/start', {
        key: server.keys.other,
        body: { project_id: project, goal: 'g' },
        headers: { 'torpor-user': project },
      });
    expect((await start('one')).statusCode).toBe(201);
    expect((await start('two')).statusCode).toBe(201);
    const refused = await start('three');
    expect([refused.statusCode, refused.json().detail]).toEqual([
      429,
      'The quota queuedBuilds of "other" is 1, and 1 are in use.',
    ]);
    const rows = await server.world.db.query(
      `SELECT user_id, CASE WHEN admitted_at IS NULL THEN 0 ELSE 1 END AS admitted FROM build_jobs
       WHERE org = 'other' ORDER BY number`,
    );
    expect(rows).toEqual([
      { user_id: 'one', admitted: 1 },
      { user_id: 'two', admitted: 0 },
    ]);
    expect((await server.ask('GET', '/v1/orgs/other')).json().used).toMatchObject({
      runningBuilds: 1,
      queuedBuilds: 1,
    });
  });
});
