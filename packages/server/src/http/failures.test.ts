import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { isId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: URL;
beforeAll(async () => {
  server = await testServer();
  url = new URL(await server.listen());
});
afterAll(() => server.dispose());

const post = (payload: string, headers: Record<string, string> = { 'content-type': 'application/json' }) =>
  server.ask('POST', '/v1/sandboxes', { body: payload, headers });

/** All rows of the database, to show that a refused request left nothing behind. */
async function everything(): Promise<string> {
  const paths = ['/v1/sandboxes', '/v1/operations', '/v1/events', '/v1/keys'];
  return (await Promise.all(paths.map((path) => server.ask('GET', `${path}?limit=1000`))))
    .map((r) => r.body)
    .join();
}

async function raw(bytes: string): Promise<string> {
  const socket = connect(Number(url.port), url.hostname);
  await once(socket, 'connect');
  socket.write(bytes);
  return text(socket);
}

describe('an invalid request', () => {
  const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`;
  it.each([
    ['incomplete JSON', '{"name":', 400, 'The body is not JSON.'],
    ['an incomplete string', '"', 400, 'The body is not JSON.'],
    ['an array instead of an object', '[]', 400, 'expected object'],
    ['null', 'null', 201, ''],
    ['an unknown field', '{"nmae":"a"}', 400, 'Unrecognized key'],
    ['a wrong type', '{"timeoutSeconds":"60"}', 400, 'timeoutSeconds'],
    ['a number out of range', '{"timeoutSeconds":1e99}', 400, 'timeoutSeconds'],
    ['two sources', '{"template":"base","from":"ckpt_aaaaaaaaaaaaaaaaaaaa"}', 400, 'not both'],
    ['a NUL in a value', '{"metadata":{"a":"\\u0000"}}', 400, 'NUL'],
    ['a lone surrogate', '{"metadata":{"a":"\\ud800"}}', 400, 'surrogate'],
    ['a NUL in a name', '{"metadata":{"a\\u0000":"b"}}', 400, 'NUL'],
    ['the key __proto__', '{"metadata":{"__proto__":"b"}}', 400, '__proto__'],
    ['too deep nesting', deep, 400, 'nested too deeply'],
    ['a key with a newline', '{"env":{"A\\nB":"c"}}', 400, 'env'],
  ])('is refused with what is wrong: %s', async (_, payload, status, message) => {
    const before = await everything();
    const response = await post(payload);
    expect([response.statusCode, response.body]).toEqual([status, expect.stringContaining(message)]);
    if (status === 201) return;
    expect(errorIn(response)).toMatchObject({
      code: 'invalid_request',
      retryable: false,
      hint: expect.any(String),
    });
    expect(await everything()).toBe(before);
  });

  it('names the fields that are wrong', async () => {
    const response = await post('{"services":[{"name":"a","command":"b","port":70000}],"preview":"maybe"}');
    expect(errorIn(response).details).toMatchObject({
      in: 'body',
      fields: [{ path: 'preview' }, { path: 'services.0.port' }],
    });
  });

  it('is refused when it is too large, by its header and by its actual size', async () => {
    const large = JSON.stringify({ metadata: { a: 'x'.repeat(1024 * 1024) } });
    const said = await post(large);
    expect([said.statusCode, errorIn(said).code]).toEqual([413, 'invalid_request']);
    const chunked = await fetch(new URL('/v1/sandboxes', url), {
      method: 'POST',
      headers: { authorization: `Bearer ${server.keys.default}`, 'content-type': 'application/json' },
      body: new Blob([large]).stream(),
      duplex: 'half',
    } as RequestInit);
    expect(chunked.status).toBe(413);
    expect(await chunked.json()).toMatchObject({ error: { code: 'invalid_request' } });
  });

  it('is refused when its body is of another type', async () => {
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/xml',
      'multipart/form-data',
    ]) {
      const response = await post('a=b', { 'content-type': type });
      expect([response.statusCode, errorIn(response).code]).toEqual([415, 'invalid_request']);
    }
  });

  it('is refused when its body is compressed', async () => {
    const packed = gzipSync('{}');
    for (const encoding of ['gzip', 'GZIP', 'br', 'identity, gzip']) {
      const response = await post(packed as never, {
        'content-type': 'application/json',
        'content-encoding': encoding,
      });
      expect([response.statusCode, errorIn(response)]).toMatchObject([
        415,
        { code: 'invalid_request', message: expect.stringContaining('Content-Encoding') },
      ]);
      expect(response.headers['accept-encoding']).toBe('identity');
    }
    const file = await server.ask('PUT', `/v1/sandboxes/${await server.create()}/files?path=a`, {
      body: packed,
      headers: { 'content-encoding': 'gzip' },
    });
    expect([file.statusCode, errorIn(file).code]).toEqual([415, 'invalid_request']);
    const plain = await post('{}', { 'content-type': 'application/json', 'content-encoding': 'identity' });
    expect(plain.statusCode).toBe(201);
  });

  it('gets 404 for an unknown path and 405 for a wrong method', async () => {
    const nowhere = await server.ask('GET', '/v1/nothing');
    expect([nowhere.statusCode, errorIn(nowhere).code]).toEqual([404, 'not_found']);
    const method = await server.ask('PATCH', '/v1/sandboxes/sbx_aaaaaaaaaaaaaaaaaaaa');
    expect([method.statusCode, errorIn(method).code]).toEqual([405, 'invalid_request']);
    expect(method.headers['allow']).toBe('DELETE, GET, HEAD');
  });

  it('is refused when its URL cannot be parsed', async () => {
    const response = await server.ask('GET', '/v1/sandboxes/%zz');
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
    expect(isId('req', String(response.headers['x-request-id']))).toBe(true);
  });

  it('is refused in the same shape when it is not even HTTP', async () => {
    expect(await raw('hello\r\n\r\n')).toMatch(
      /^HTTP\/1.1 400 [\s\S]*X-Request-Id: req_[\s\S]*"code":"invalid_request"/,
    );
    const overflow = await raw(`GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(100_000)}\r\n\r\n`);
    expect(overflow).toMatch(/^HTTP\/1.1 431 [\s\S]*"code":"invalid_request"/);
  });
});

describe('the request id', () => {
  it('is on every answer, in its body when it is an error, and in the log (R102)', async () => {
    const fine = await server.ask('GET', '/v1/runtimes');
    const wrong = await server.ask('GET', '/v1/nothing');
    for (const response of [fine, wrong]) {
      const id = String(response.headers['x-request-id']);
      expect(isId('req', id)).toBe(true);
      expect(server.log.join('')).toContain(`"requestId":"${id}"`);
    }
    expect(errorIn(wrong).requestId).toBe(wrong.headers['x-request-id']);
  });

  it('is made by the server; an id that the caller sends is ignored', async () => {
    const id = 'req_aaaaaaaaaaaaaaaaaaaa';
    const response = await server.ask('GET', '/v1/runtimes', {
      headers: { 'x-request-id': id, 'request-id': id },
    });
    expect(response.headers['x-request-id']).not.toBe(id);
  });
});

describe('an internal error', () => {
  it('has no internal details in the answer and all of them in the log (R114)', async () => {
    const broken = await testServer({
      wrapApp: ({ engine }) => ({
        engine: Object.create(engine, {
          list: {
            value: () => Promise.reject(new Error('relation "sandboxes" does not exist at /srv/db.ts')),
          },
        }),
      }),
    });
    const response = await broken.ask('GET', '/v1/sandboxes');
    expect([response.statusCode, errorIn(response)]).toMatchObject([
      500,
      {
        code: 'internal',
        message: 'Something went wrong inside Torpor.',
        requestId: response.headers['x-request-id'],
      },
    ]);
    expect(response.body).not.toContain('relation');
    expect(broken.log.join('')).toMatch(/"level":"error"[^\n]*relation \\"sandboxes\\" does not exist/);
    await broken.dispose();
  });

  it('has Retry-After when the error has one', async () => {
    const { TorporError } = await import('@torpor/protocol');
    const busy = await testServer({
      wrapApp: ({ engine }) => ({
        engine: Object.create(engine, {
          list: {
            value: () => Promise.reject(new TorporError('capacity', 'Full.', { retryAfterMs: 1_500 })),
          },
        }),
      }),
    });
    const response = await busy.ask('GET', '/v1/sandboxes');
    expect([response.statusCode, response.headers['retry-after']]).toEqual([503, '2']);
    expect(errorIn(response)).toMatchObject({ code: 'capacity', retryable: true, retryAfterMs: 1_500 });
    await busy.dispose();
  });
});
