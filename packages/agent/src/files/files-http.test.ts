import { chmod, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { beginUpload } from '../../testing/broken-upload.ts';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';

const PATIENT = { timeout: 20_000 };

let agent: RunningAgent;
let directory = '';
let count = 0;

beforeAll(async () => {
  agent = await runAgent();
});

beforeEach(async () => {
  count += 1;
  directory = join(agent.directory, String(count));
  await mkdir(directory);
});

afterAll(() => agent.stop());

const at = (...names: string[]) => join(directory, ...names);
const url = (path?: string) =>
  `${agent.baseUrl}/files${path === undefined ? '' : `?path=${encodeURIComponent(path)}`}`;
const octets = { 'content-type': 'application/octet-stream' };

async function put(
  path: string,
  body: string | Uint8Array<ArrayBuffer>,
  headers: Record<string, string> = {},
) {
  const response = await fetch(url(path), { method: 'POST', body, headers: { ...octets, ...headers } });
  return { status: response.status, body: (await response.json()) as unknown };
}

async function get(path: string, headers: Record<string, string> = {}) {
  const response = await fetch(url(path), { headers });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

describe('POST /files', () => {
  it('writes a file and creates its parent directories', async () => {
    const answer = await put(at('a', 'b.txt'), 'hello');
    expect(answer).toEqual({ status: 200, body: [{ path: at('a', 'b.txt'), name: 'b.txt', type: 'file' }] });
    expect(await readFile(at('a', 'b.txt'), 'utf8')).toBe('hello');
    expect((await stat(at('a', 'b.txt'))).mode & 0o777).toBe(0o644);
  });

  it('replaces a file and keeps its mode', async () => {
    await writeFile(at('script'), 'old');
    await chmod(at('script'), 0o755);
    await put(at('script'), 'new');
    expect(await readFile(at('script'), 'utf8')).toBe('new');
    expect((await stat(at('script'))).mode & 0o777).toBe(0o755);
  });

  it('writes through a link, also one whose target does not exist yet', async () => {
    await symlink('target', at('alias'));
    await put(at('alias'), 'through');
    expect(await readFile(at('target'), 'utf8')).toBe('through');
    expect(await readFile(at('alias'), 'utf8')).toBe('through');
  });

  it('accepts gzip', async () => {
    await put(at('big'), gzipSync('x'.repeat(100_000)), { 'content-encoding': 'gzip' });
    expect(await readFile(at('big'), 'utf8')).toBe('x'.repeat(100_000));
  });

  it('keeps metadata until the next upload of the file', async () => {
    const metadata = { 'x-metadata-author': 'me', 'x-metadata-kind': 'a b' };
    const answer = await put(at('a'), 'x', metadata);
    expect(answer.body).toMatchObject([{ metadata: { author: 'me', kind: 'a b' } }]);
    const entry = async () => (await agent.client.filesystem.stat({ path: at('a') })).entry;
    expect((await entry())?.metadata).toEqual({ author: 'me', kind: 'a b' });
    await put(at('a'), 'y');
    expect((await entry())?.metadata).toEqual({});
  });

  it('writes each file of a form to its path', async () => {
    const form = new FormData();
    const names = ['plain.txt', 'quo"te', 'new\nline', 'ünï-文', '-rf', 'deep/er/file'];
    for (const name of names) form.append('file', new Blob([name]), at(name));
    form.append('comment', 'not a file');
    form.append('other', new Blob(['ignored']), at('ignored'));
    const response = await fetch(url(), { method: 'POST', body: form });
    expect(response.status).toBe(200);
    expect(((await response.json()) as { path: string }[]).map(({ path }) => path)).toEqual(
      names.map((name) => at(name)),
    );
    for (const name of names) expect(await readFile(at(name), 'utf8')).toBe(name);
    expect(await readdir(directory)).not.toContain('ignored');
  });

  it('writes the one file of a form to the path in the URL', async () => {
    const form = new FormData();
    form.append('file', new Blob(['content']), 'whatever');
    expect((await fetch(url(at('named')), { method: 'POST', body: form })).status).toBe(200);
    expect(await readFile(at('named'), 'utf8')).toBe('content');
  });

  it('writes a part without a file name to the path in the URL', async () => {
    const form = new FormData();
    form.append('file', 'content of a field');
    const response = await fetch(url(at('unnamed')), { method: 'POST', body: form });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual([{ path: at('unnamed'), name: 'unnamed', type: 'file' }]);
    expect(await readFile(at('unnamed'), 'utf8')).toBe('content of a field');
  });

  it.each([
    ['whose part names no file, without a path in the address', 'file', undefined],
    ['that has no part named file', 'other', 'nothing-to-write'],
  ])('refuses a form %s', async (_, field, path) => {
    const form = new FormData();
    form.append(field, 'content');
    const response = await fetch(url(path && at(path)), { method: 'POST', body: form });
    expect(response.status).toBe(400);
    expect(await readdir(directory)).toEqual([]);
  });

  it('refuses the same path twice in one form', async () => {
    const form = new FormData();
    for (const text of ['first', 'second']) form.append('file', new Blob([text]), at('same'));
    const response = await fetch(url(), { method: 'POST', body: form });
    expect(response.status).toBe(400);
    expect(await readFile(at('same'), 'utf8')).toBe('first');
  });

  it.each([
    ['no path', () => fetch(url(), { method: 'POST', body: 'x', headers: octets }), 400],
    ['another type', () => fetch(url(at('a')), { method: 'POST', body: 'x' }), 400],
    [
      'another encoding',
      () =>
        fetch(url(at('a')), { method: 'POST', body: 'x', headers: { ...octets, 'content-encoding': 'br' } }),
      400,
    ],
    [
      'a gzip header without gzip content',
      () =>
        fetch(url(at('a')), {
          method: 'POST',
          body: 'xxxxxx',
          headers: { ...octets, 'content-encoding': 'gzip' },
        }),
      400,
    ],
    [
      'a form without boundary',
      () =>
        fetch(url(at('a')), {
          method: 'POST',
          body: 'x',
          headers: { 'content-type': 'multipart/form-data' },
        }),
      400,
    ],
    [
      'an incomplete form',
      () =>
        fetch(url(), {
          method: 'POST',
          body: `--b\r\nContent-Disposition: form-data; name="file"; filename="${at('a')}"\r\n\r\nhalf`,
          headers: { 'content-type': 'multipart/form-data; boundary=b' },
        }),
      400,
    ],
    ['a directory', () => fetch(url(directory), { method: 'POST', body: 'x', headers: octets }), 400],
    ['a device', () => fetch(url('/dev/null'), { method: 'POST', body: 'x', headers: octets }), 400],
    [
      'too much metadata',
      () =>
        fetch(url(at('a')), {
          method: 'POST',
          body: 'x',
          headers: { ...octets, 'x-metadata-a': 'x'.repeat(9000) },
        }),
      400,
    ],
  ])('answers with the usual error body to %s', async (_, send, status) => {
    const response = await send();
    expect(response.status).toBe(status);
    expect(await response.json()).toEqual({ code: status, message: expect.any(String) });
    expect(await readdir(directory)).toEqual([]);
  });

  it('answers 507 before the upload when the disk has too little space', async () => {
    const { hostname, port } = new URL(agent.baseUrl);
    const { request } = await import('node:http');
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const outgoing = request({
        host: hostname,
        port,
        method: 'POST',
        path: `/files?path=${encodeURIComponent(at('huge'))}`,
        headers: { ...octets, 'content-length': String(2 ** 50) },
      });
      outgoing.on('response', (response) => {
        resolve(response.statusCode);
        outgoing.destroy();
      });
      outgoing.on('error', reject);
      outgoing.write('begin');
    });
    expect(status).toBe(507);
    expect(await readdir(directory)).toEqual([]);
  });

  it.each([
    ['as it is', octets, 'half'],
    [
      'in a form',
      { 'content-type': 'multipart/form-data; boundary=b' },
      '--b\r\nContent-Disposition: form-data; name="file"; filename="PATH"\r\n\r\nhalf',
    ],
  ])('leaves nothing of an interrupted upload %s, and the old file unchanged', async (_, headers, first) => {
    await writeFile(at('old'), 'old');
    const upload = await beginUpload(
      agent.baseUrl,
      `/files?path=${encodeURIComponent(at('old'))}`,
      headers,
      first,
    );
    await expect.poll(() => readdir(directory), PATIENT).toHaveLength(2);
    upload.breakOff();
    await expect.poll(() => readdir(directory), PATIENT).toEqual(['old']);
    expect(await readFile(at('old'), 'utf8')).toBe('old');
  });
});

describe('GET /files', () => {
  it('sends the bytes with headers against content sniffing', async () => {
    await writeFile(at('ünï.html'), '<script>');
    const { status, headers, text } = await get(at('ünï.html'));
    expect([status, text]).toEqual([200, '<script>']);
    expect(headers.get('content-type')).toBe('application/octet-stream');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('content-disposition')).toBe("inline; filename*=UTF-8''%C3%BCn%C3%AF.html");
    expect(headers.get('content-length')).toBe('8');
  });

  it('sends an empty file', async () => {
    await writeFile(at('empty'), '');
    const { status, headers, text } = await get(at('empty'), { 'accept-encoding': 'gzip' });
    expect([status, text, headers.get('content-length')]).toEqual([200, '', '0']);
  });

  it('reads files in /proc, which report size 0', async () => {
    expect((await get('/proc/self/status')).text).toContain('Pid:');
  });

  it('sends a range', async () => {
    await writeFile(at('ten'), '0123456789');
    const part = await get(at('ten'), { range: 'bytes=2-4' });
    expect([part.status, part.text, part.headers.get('content-range')]).toEqual([206, '234', 'bytes 2-4/10']);
    const outside = await get(at('ten'), { range: 'bytes=20-' });
    expect([outside.status, outside.headers.get('content-range')]).toEqual([416, 'bytes */10']);
    expect((await get(at('ten'), { range: 'bytes=2-4', 'if-range': '"x"' })).text).toBe('0123456789');
  });

  it('compresses only for clients that accept nothing but gzip', async () => {
    await writeFile(at('text'), 'x'.repeat(10_000));
    const { request } = await import('node:http');
    const raw = await new Promise<{ encoding: string | undefined; body: Buffer }>((resolve, reject) => {
      request(url(at('text')), { headers: { 'accept-encoding': 'gzip' } }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({ encoding: response.headers['content-encoding'], body: Buffer.concat(chunks) }),
        );
      })
        .on('error', reject)
        .end();
    });
    expect(raw.encoding).toBe('gzip');
    expect(raw.body.length).toBeLessThan(1000);
    expect(gunzipSync(raw.body).toString()).toBe('x'.repeat(10_000));
  });

  it('answers with the usual error body when there is no such file', async () => {
    const missing = await get(at('missing'));
    expect(missing.status).toBe(404);
    expect(JSON.parse(missing.text)).toEqual({
      code: 404,
      message: expect.stringContaining('does not exist'),
    });
    expect((await get(directory)).status).toBe(400);
    expect((await get('/dev/zero')).status).toBe(400);
  });

  it('does not block on a FIFO', async () => {
    const { execFileSync } = await import('node:child_process');
    execFileSync('mkfifo', [at('pipe')]);
    expect((await get(at('pipe'))).status).toBe(400);
    expect((await put(at('pipe'), 'x')).status).toBe(400);
  });
});

describe('POST /files/compose', () => {
  const compose = async (body: unknown) => {
    const response = await fetch(`${agent.baseUrl}/files/compose`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    return { status: response.status, body: (await response.json()) as unknown };
  };

  it('writes one file out of several and removes these', async () => {
    for (const [name, text] of [
      ['1', 'one '],
      ['2', 'two '],
    ] as const)
      await writeFile(at(name), text);
    const answer = await compose({ source_paths: [at('1'), at('2')], destination: at('all') });
    expect(answer).toEqual({ status: 200, body: { path: at('all'), name: 'all', type: 'file' } });
    expect(await readFile(at('all'), 'utf8')).toBe('one two ');
    expect(await readdir(directory)).toEqual(['all']);
  });

  it('can use one of the sources as the destination', async () => {
    for (const name of ['1', '2']) await writeFile(at(name), name);
    await compose({ source_paths: [at('1'), at('2')], destination: at('1') });
    expect(await readFile(at('1'), 'utf8')).toBe('12');
    expect(await readdir(directory)).toEqual(['1']);
  });

  it('changes nothing when a source is missing', async () => {
    await writeFile(at('1'), 'one');
    expect((await compose({ source_paths: [at('1'), at('2')], destination: at('all') })).status).toBe(404);
    expect(await readdir(directory)).toEqual(['1']);
  });

  it('refuses an invalid body', async () => {
    expect((await compose({ source_paths: 'x' })).status).toBe(400);
    expect((await compose({ source_paths: [], destination: at('all') })).status).toBe(400);
  });
});
