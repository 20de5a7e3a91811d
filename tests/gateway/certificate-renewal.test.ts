/** A real server with `--tls-cert` and `--tls-key` while another program renews the files. */
import { randomBytes, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createAuthority } from '../../packages/certificates/src/index.ts';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const NAME = '3000-x.sbx.example.com';

let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
let server: TorporProcess | undefined;
beforeAll(async () => {
  dataDir = await makeDataDir();
});
afterAll(async () => {
  await server?.kill('SIGTERM');
  await dataDir?.remove();
});

/** Puts a new pair in place of the one that is there, and returns the fingerprint of its certificate. */
async function renew(files: { readonly cert: string; readonly key: string }): Promise<string> {
  const names = ['sbx.example.com', '*.sbx.example.com', '127.0.0.1'];
  const made = createAuthority({ called: 'Test', names }, { now: Date.now(), days: 1, randomBytes });
  for (const [file, pem] of [
    [files.cert, made.cert],
    [files.key, made.key],
  ] as const) {
    await writeFile(`${file}.new`, pem);
    await rename(`${file}.new`, file);
  }
  return new X509Certificate(made.cert).fingerprint256;
}

async function open(port: number): Promise<TLSSocket> {
  const socket = connect({ host: '127.0.0.1', port, servername: NAME, rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  return socket;
}

async function shownBy(port: number): Promise<string> {
  const socket = await open(port);
  const { fingerprint256 } = socket.getPeerCertificate();
  socket.destroy();
  return fingerprint256;
}

async function healthOver(socket: TLSSocket): Promise<string> {
  socket.write('GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
  const [answer] = (await once(socket, 'data')) as [Buffer];
  return String(answer).split('\r\n', 1)[0] ?? '';
}

describe('a certificate in files', () => {
  it('is shown to new connections after it was renewed, and open connections go on', async () => {
    const files = { cert: join(dataDir.path, 'fullchain.pem'), key: join(dataDir.path, 'key.pem') };
    const first = await renew(files);
    server = await startTorpor(dataDir.path, { TORPOR_LOG_LEVEL: 'silent' }, 'process', [
      ...['--tls-cert', files.cert, '--tls-key', files.key, '--domain', 'sbx.example.com'],
      ...['--set', 'server.certificateEveryMs=100'],
    ]);
    const port = Number(new URL(server.url).port);
    expect(new URL(server.url).protocol).toBe('https:');
    expect(await shownBy(port)).toBe(first);
    const opened = await open(port);
    expect(await healthOver(opened)).toBe('HTTP/1.1 200 OK');
    const second = await renew(files);
    expect(second).not.toBe(first);
    await expect.poll(() => shownBy(port)).toBe(second);
    expect(await healthOver(opened)).toBe('HTTP/1.1 200 OK');
    opened.destroy();
    // A pair that does not belong together, as in the middle of a renewal, changes nothing.
    await writeFile(files.key, 'no key');
    const third = await renew(files);
    await expect.poll(() => shownBy(port)).toBe(third);
  });
});
