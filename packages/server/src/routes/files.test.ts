import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: string;
let id: SandboxId;
let home: string;
beforeAll(async () => {
  server = await testServer({ settings: { stallMs: 500 } });
  url = await server.listen();
  id = await server.create();
  home = await server.runtime.homeOf(id);
});
afterAll(() => server.dispose());

const at = (path: string, sandbox = id) => `/v1/sandboxes/${sandbox}/files?path=${encodeURIComponent(path)}`;

describe('files', () => {
  it('are written and read byte for byte, with any content type', async () => {
    const bytes = randomBytes(200_000);
    for (const type of ['application/octet-stream', 'application/json', 'text/plain', undefined]) {
      const headers: Record<string, string> = type === undefined ? {} : { 'content-type': type };
      const written = await server.ask('PUT', at('a/b/c.bin'), { body: bytes, headers });
      expect([written.statusCode, written.json()]).toEqual([
        200,
        { path: join(home, 'a/b/c.bin'), name: 'c.bin' },
      ]);
    }
    const read = await server.ask('GET', at('a/b/c.bin'));
    expect(read.rawPayload.equals(bytes)).toBe(true);
    expect(read.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': '200000',
      'content-security-policy': 'sandbox',
      'x-content-type-options': 'nosniff',
    });
  });

  it('may be empty', async () => {
    await server.ask('PUT', at('empty'), {
      body: '',
      headers: { 'content-type': 'application/octet-stream' },
    });
    const read = await server.ask('GET', at('empty'));
    expect([read.statusCode, read.body]).toEqual([200, '']);
  });

  it('of any size are streamed without buffering', async () => {
    const size = 64 * 1024 * 1024;
    const hash = createHash('sha256');
    const source = Readable.from(
      (function* () {
        const block = randomBytes(1024 * 1024);
        for (let sent = 0; sent < size; sent += block.length) {
          hash.update(block);
          yield block;
        }
      })(),
    );
    const headers = { 'x-api-key': server.keys.default };
    const put = await fetch(url + at('big'), {
      method: 'PUT',
      headers,
      body: source,
      duplex: 'half',
    } as RequestInit);
    expect(put.status).toBe(200);
    const got = createHash('sha256');
    const read = await fetch(url + at('big'), { headers });
    for await (const chunk of read.body ?? []) got.update(chunk);
    expect(got.digest('hex')).toBe(hash.digest('hex'));
  });

  it('of a directory are listed', async () => {
    await mkdir(join(home, 'dir/sub'), { recursive: true });
    await writeFile(join(home, 'dir/file'), 'four');
    await symlink('nowhere', join(home, 'dir/link'));
    const list = (await server.ask('GET', at('dir'))).json();
    expect(list).toMatchObject({
      path: join(home, 'dir'),
      entries: [
        { name: 'file', type: 'file', size: 4, modifiedAt: expect.any(Number), symlinkTarget: null },
        { name: 'link', type: 'symlink' },
        { name: 'sub', type: 'directory' },
      ],
    });
  });

  it('are removed, and directories with their contents', async () => {
    await mkdir(join(home, 'gone/deep'), { recursive: true });
    const headers = { 'idempotency-key': 'remove-1' };
    expect((await server.ask('DELETE', at('gone'), { headers })).statusCode).toBe(204);
    expect((await server.ask('DELETE', at('gone'), { headers })).statusCode).toBe(204);
    expect(await readdir(home)).not.toContain('gone');
  });

  it('that do not exist or are not accessible are typed errors', async () => {
    await symlink('/etc', join(home, 'way-out'));
    const asked = async (method: 'GET' | 'PUT' | 'DELETE', path: string) => {
      const response = await server.ask(method, at(path));
      return [response.statusCode, errorIn(response).code];
    };
    expect(await asked('GET', 'absent')).toEqual([404, 'not_found']);
    expect(await asked('GET', '/etc/passwd')).toEqual([403, 'forbidden']);
    expect(await asked('GET', '../../../etc/passwd')).toEqual([403, 'forbidden']);
    expect(await asked('GET', 'way-out/passwd')).toEqual([403, 'forbidden']);
    expect(await asked('PUT', 'way-out/planted')).toEqual([403, 'forbidden']);
    expect(await asked('PUT', 'dir')).toEqual([400, 'invalid_request']);
    expect(await asked('DELETE', '.')).toEqual([400, 'invalid_request']);
    expect(await asked('GET', 'a\u0000b')).toEqual([400, 'invalid_request']);
    expect(await asked('GET', 'x'.repeat(300))).toEqual([400, 'invalid_request']);
    expect(await asked('GET', '')).toEqual([400, 'invalid_request']);
  });

  it('wake a paused sandbox', async () => {
    const sleeper = await server.create();
    await server.ask('PUT', at('kept', sleeper), { body: 'x' });
    await server.ask('POST', `/v1/sandboxes/${sleeper}/pause`);
    expect((await server.ask('GET', at('kept', sleeper))).body).toBe('x');
    expect((await server.ask('GET', `/v1/sandboxes/${sleeper}`)).json().state).toBe('running');
  });

  it('do not change when an upload is interrupted', async () => {
    await server.ask('PUT', at('whole'), { body: 'before' });
    const put = request(url + at('whole'), { method: 'PUT', headers: { 'x-api-key': server.keys.default } });
    put.on('error', () => {});
    put.write('half of');
    while (server.world.engine.leases.count(id) === 0) await delay(10);
    put.destroy();
    while (server.world.engine.leases.count(id) > 0) await delay(10);
    expect(await readFile(join(home, 'whole'), 'utf8')).toBe('before');
  });

  it('time out when an upload stalls', async () => {
    const answer = await new Promise<number | undefined>((resolve) => {
      const put = request(url + at('stalled'), {
        method: 'PUT',
        headers: { 'x-api-key': server.keys.default },
      });
      put.on('response', (response) => {
        resolve(response.statusCode);
        put.destroy();
      });
      put.on('error', () => resolve(undefined));
      put.write('one byte, then nothing');
    });
    expect(answer).toBe(504);
    expect(await readdir(home)).not.toContain('stalled');
  });
});
