import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

const GIB = 1024 ** 3;

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.dispose());

const free = async (freeBytes: number) => {
  server.world.store.room = { freeBytes, totalBytes: 100 * GIB };
  await server.world.engine.checkDisk();
};

describe('a disk that fills up', () => {
  it('shows in health, metrics, log and an event before anything is refused (R115)', async () => {
    await free(9 * GIB);
    expect((await server.ask('GET', '/health')).json()).toMatchObject({ status: 'ok', disk: 'low' });
    const metrics = (await server.ask('GET', '/metrics')).body;
    expect(metrics).toMatch(/^torpor_disk_level\{level="low"\} 1$/m);
    expect(metrics).toMatch(/^torpor_disk_level\{level="ok"\} 0$/m);
    expect(metrics).toContain(`torpor_disk_free_bytes ${9 * GIB}`);
    expect(server.log.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ event: 'disk.low', level: 'warn', freeBytes: 9 * GIB }),
    );
    expect((await server.ask('GET', '/v1/admin/disk')).json()).toMatchObject({
      level: 'low',
      freeBytes: 9 * GIB,
      lowBytes: 10 * GIB,
      refuseBytes: 2 * GIB,
      reserve: null,
      events: [{ type: 'disk.low', previousLevel: 'ok' }],
    });
    await server.create();
  });

  it('refuses new sandboxes with free and needed bytes in the error, and answers 200 to probes', async () => {
    await free(GIB);
    const refused = await server.ask('POST', '/v1/sandboxes', { body: {} });
    expect(refused.statusCode).toBe(507);
    expect(errorIn(refused)).toMatchObject({
      code: 'storage_full',
      retryable: true,
      details: { level: 'refusing', freeBytes: GIB, neededBytes: GIB, boundBytes: 2 * GIB },
    });
    const health = await server.ask('GET', '/health');
    expect([health.statusCode, health.json()]).toMatchObject([200, { status: 'degraded', disk: 'refusing' }]);
    await free(50 * GIB);
    await server.create();
  });

  it('is shown to operator keys only (R104)', async () => {
    for (const key of [server.keys.other, server.keys.user]) {
      expect((await server.ask('GET', '/v1/admin/disk', { key })).statusCode).toBe(403);
    }
  });
});
