import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
  await server.create({ resources: { memoryMb: 64 } }, server.keys.other);
});
afterAll(() => server.dispose());

describe('GET /v1/usage', () => {
  it("returns the usage of the key's organisation in the current month (R104)", async () => {
    const own = (await server.ask('GET', '/v1/usage', { key: server.keys.other })).json();
    const now = new Date();
    expect(own).toMatchObject({
      orgId: 'other',
      from: Date.UTC(now.getUTCFullYear(), now.getUTCMonth()),
      pausedSeconds: 0,
      memoryMbSeconds: own.runningSeconds * 64,
      egressBytes: null,
    });
    expect((await server.ask('GET', '/v1/usage')).json()).toMatchObject({
      orgId: 'default',
      runningSeconds: 0,
    });
  });

  it('returns the usage of any organisation only to an operator key (R104)', async () => {
    const other = await server.ask('GET', '/v1/usage?orgId=other&from=2026-01-01&to=4102444800000');
    expect(other.json()).toMatchObject({ orgId: 'other', from: Date.UTC(2026, 0, 1) });
    const sly = await server.ask('GET', '/v1/usage?orgId=default', { key: server.keys.other });
    expect([sly.statusCode, errorIn(sly).code]).toEqual([403, 'forbidden']);
    const nobody = await server.ask('GET', '/v1/usage?orgId=nobody');
    expect([nobody.statusCode, errorIn(nobody).code]).toEqual([404, 'not_found']);
  });

  it.each([
    'from=yesterday',
    'from=2026-13-41',
    'from=-5',
    'from=2026-01-02&to=2026-01-01',
    'from=4102444800000',
    'since=1',
  ])('refuses %s', async (query) => {
    const refused = await server.ask('GET', `/v1/usage?${query}`);
    expect([refused.statusCode, errorIn(refused).code]).toEqual([400, 'invalid_request']);
  });
});

describe('GET /metrics', () => {
  it('has the usage of each organisation, and sums up those beyond a limit (R104)', async () => {
    await server.world.db.transaction(async (tx) => {
      for (let i = 0; i < 120; i++)
        await tx.query('INSERT INTO orgs (id, created_at) VALUES ($1, 9000000000000)', [`late-${i}`]);
      await tx.query("INSERT INTO usage_totals (org, kind, ms) VALUES ('late-99', 'paused', 5000)");
    });
    const { body } = await server.ask('GET', '/metrics');
    expect(body).toMatch(/^torpor_org_running_seconds_total\{org="other"\} [\d.]+$/m);
    expect(body).toMatch(/^torpor_org_disk_bytes\{org="default"\} \d+$/m);
    expect(body).toContain('torpor_org_paused_seconds_total{org="_others"} 5');
    expect(body.match(/^torpor_org_disk_bytes\{/gm)).toHaveLength(101);
  });
});
