import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:http2';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { bareSandboxId, type SandboxId } from '@torpor/protocol';
import { expect, it } from 'vitest';
import { makeDataDir, startTorpor } from '../crash/torpor-process.ts';
import { guestService } from '../wake/guest-app.ts';

const run = promisify(execFile);
const BIN = join(import.meta.dirname, '../../packages/cli/bin/torpor.mjs');

it('--tls: API, previews and the command line over one port, with local certificates', {
  timeout: 120_000,
}, async () => {
  const dataDir = await makeDataDir();
  const server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'error' }, 'process', ['--tls']);
  try {
    expect(server.url).toMatch(/^https:/);
    const env = {
      PATH: process.env['PATH'],
      HOME: dataDir.path,
      TORPOR_DATA_DIR: dataDir.path,
      TORPOR_API_KEY: server.apiKey,
    };
    const torpor = async (...args: string[]) => (await run(process.execPath, [BIN, ...args], { env })).stdout;
    const service = guestService();
    const id = (await torpor('create', '--service', `web:3000=${service.command}`)).trim() as SandboxId;
    const host = `3000-${bareSandboxId(id)}.sbx.localhost`;
    expect(await torpor('ports', id)).toContain(`https://${host}:`);
    expect(await torpor('exec', id, 'echo from inside')).toBe('from inside\n');

    const ca = await readFile(join(dataDir.path, 'tls', 'ca.pem'), 'utf8');
    const port = Number(new URL(server.url).port);
    const createConnection = () =>
      connectTls({ host: '127.0.0.1', port, servername: host, ca, ALPNProtocols: ['h2'] });
    const session = connect(`https://${host}:${port}`, { createConnection });
    const ask = async (path: string, authority: string, key = '') => {
      const stream = session.request({
        ':path': path,
        ':authority': authority,
        ...(key === '' ? {} : { 'x-api-key': key }),
      });
      const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
      return { status: headers[':status'], text: (await buffer(stream)).toString() };
    };
    expect(await ask('/x/over-h2', `${host}:${port}`)).toEqual({ status: 200, text: 'GET over-h2 ' });
    await torpor('pause', id);
    expect(await ask('/x/woken', `${host}:${port}`)).toEqual({ status: 200, text: 'GET woken ' });
    expect((await ask(`/v1/sandboxes/${id}`, `127.0.0.1:${port}`, server.apiKey)).status).toBe(200);
    expect((await ask(`/v1/sandboxes/${id}`, `127.0.0.1:${port}`)).status).toBe(401);
    session.close();
    await torpor('kill', id, '--yes');
  } finally {
    await server.kill('SIGTERM');
    await dataDir.remove();
  }
});
