import { get } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type TestServer, testServer } from '../../testing/index.ts';
import { HostNames } from './host-names.ts';

const hostNames = new HostNames({
  host: '127.0.0.1',
  domain: 'sbx.example.com:8443',
  machine: 'workshop',
  allowed: ['torpor.example.org', '*.internal.example.net'],
});

let server: TestServer;
let port: number;
beforeAll(async () => {
  server = await testServer({ wrapApp: () => ({ hostNames }) });
  port = Number(new URL(await server.listen()).port);
});
afterAll(() => server.dispose());

function ask(path: string, headers: Record<string, string>): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, headers, agent: false }, (response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
    }).on('error', reject);
  });
}

describe('the host name of a request', () => {
  it.each(['/metrics', '/health', '/v1/openapi.json'])(
    "must be one of the server's own for %s without a key, against DNS rebinding",
    async (path) => {
      for (const host of [
        'attacker.example',
        `attacker.example:${port}`,
        'sbx.example.com.attacker.example',
        'localhost@attacker.example',
      ]) {
        const { status, body } = await ask(path, { host });
        expect([host, status]).toEqual([host, 403]);
        expect(body).not.toContain('torpor_http_requests_total');
        expect(JSON.parse(body)).toMatchObject({ error: { code: 'forbidden' } });
      }
    },
  );

  it.each([
    'localhost',
    '127.0.0.1:7676',
    '[::1]:7676',
    '192.168.1.5',
    'x.sbx.localhost',
    'workshop:7676',
    'sbx.example.com',
    'API.sbx.example.com:8443',
    'torpor.example.org',
    'a.internal.example.net',
  ])('may be %s', async (host) => {
    expect((await ask('/metrics', { host })).status).toBe(200);
  });

  it('may be any name with a valid key, as behind a reverse proxy', async () => {
    const host = 'proxy.example';
    for (const path of ['/metrics', '/health', '/v1/sandboxes']) {
      expect((await ask(path, { host, 'x-api-key': server.keys.default })).status).toBe(200);
      expect((await ask(path, { host, 'x-api-key': 'ab'.repeat(32) })).status).toBe(401);
    }
  });

  it('is read from `:authority` of HTTP/2 too', () => {
    expect(hostNames.accepts({ ':authority': 'attacker.example' })).toBe(false);
    expect(hostNames.accepts({ ':authority': 'api.sbx.example.com', host: 'attacker.example' })).toBe(false);
    expect(hostNames.accepts({ ':authority': 'api.sbx.example.com' })).toBe(true);
  });
});
