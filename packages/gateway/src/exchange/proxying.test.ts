import { once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { PORT_PLACEHOLDER } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  ask,
  type FakeSandboxes,
  type GatewayWorld,
  makeGatewayWorld,
  open,
  openRaw,
} from '../../testing/index.ts';

let world: GatewayWorld;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;
beforeEach(async () => {
  world = await makeGatewayWorld();
  sandbox = world.sandboxes.make();
  host = world.hostOf(sandbox);
});
afterEach(() => world[Symbol.asyncDispose]());

const get = (asked: Parameters<typeof ask>[2] = {}) => ask(world.port, host, asked);

/** An app that responds with the request it received. */
async function echo(): Promise<void> {
  await world.serve(sandbox, async (request, response) => {
    const body = await buffer(request);
    const { method, url, rawHeaders, rawTrailers } = request;
    response.end(JSON.stringify({ method, url, rawHeaders, rawTrailers, body: body.toString('latin1') }));
  });
}

interface Echoed {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: string[];
  readonly rawTrailers: string[];
  readonly body: string;
}

function headersOf({ rawHeaders }: Echoed): Record<string, string> {
  const pairs = rawHeaders.map((name, i) => [name.toLowerCase(), rawHeaders[i + 1] ?? '']);
  return Object.fromEntries(pairs.filter((_, i) => i % 2 === 0));
}

describe('a request', () => {
  it('arrives with its method, path, query, body and headers unchanged', async () => {
    await echo();
    const { text } = await get({
      method: 'PATCH',
      path: '/a%20b/../c?d=e&f=%zz',
      headers: { 'X-Twice': ['1', '2'], 'X-CaSe': 'kept', 'Content-Type': 'text/plain' },
      body: 'the body',
    });
    const echoed = JSON.parse(text) as Echoed;
    expect(echoed).toMatchObject({ method: 'PATCH', url: '/a%20b/../c?d=e&f=%zz', body: 'the body' });
    expect(echoed.rawHeaders.join('|')).toContain('X-Twice|1|X-Twice|2|X-CaSe|kept');
    expect(headersOf(echoed)).toMatchObject({ host, 'content-length': '8' });
  });

  it('has the Host that the sandbox asks for, with its port, and the real one in X-Forwarded-Host', async () => {
    world.sandboxes.become(sandbox.id, { requestHost: `localhost:${PORT_PLACEHOLDER}` });
    await echo();
    const echoed = headersOf((await get()).json<Echoed>());
    expect(echoed).toMatchObject({ host: 'localhost:3000', 'x-forwarded-host': host });
  });

  it('carries the verified client address, whatever the client claims', async () => {
    await echo();
    const echoed = (
      await get({
        headers: {
          'X-Forwarded-For': '6.6.6.6',
          'X-Forwarded-Proto': 'https',
          'X-Forwarded-Host': 'bank.example',
          'X-Forwarded-Port': '443',
          'X-Forwarded-Prefix': '/x',
          'X-Real-Ip': '6.6.6.6',
          Forwarded: 'for=6.6.6.6',
        },
      })
    ).json<Echoed>();
    expect(echoed.rawHeaders.join('\n')).not.toContain('6.6.6.6');
    expect(headersOf(echoed)).toMatchObject({
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'http',
      'x-forwarded-host': host,
      'x-forwarded-port': String(world.port),
    });
    expect(headersOf(echoed)).not.toHaveProperty('x-forwarded-prefix');
  });

  it('loses its hop-by-hop headers, and the headers that Connection names', async () => {
    await echo();
    const echoed = (
      await get({
        headers: {
          Connection: 'close, X-Secret-Hop, X-Forwarded-For, Host',
          'Keep-Alive': 'timeout=5',
          'Proxy-Authorization': 'Basic eDp5',
          'Proxy-Connection': 'keep-alive',
          'X-Secret-Hop': 'gone',
          TE: 'trailers, deflate',
          Upgrade: 'h2c',
          'HTTP2-Settings': 'AAMAAABkAAQAAP__',
        },
      })
    ).json<Echoed>();
    const names = Object.keys(headersOf(echoed));
    for (const gone of [
      'keep-alive',
      'proxy-authorization',
      'proxy-connection',
      'x-secret-hop',
      'upgrade',
      'http2-settings',
    ])
      expect(names).not.toContain(gone);
    expect(headersOf(echoed)).toMatchObject({ te: 'trailers', host, 'x-forwarded-for': '127.0.0.1' });
  });

  it('keeps its Content-Length when a Connection header names it', async () => {
    await echo();
    const headers = { Connection: 'Content-Length, Transfer-Encoding, close' };
    const sized = (
      await get({ method: 'POST', headers: { ...headers, 'Content-Length': '4' }, body: 'four' })
    ).json<Echoed>();
    expect(sized).toMatchObject({ body: 'four' });
    expect(headersOf(sized)).toMatchObject({ 'content-length': '4' });
  });

  it('may have a chunked body with trailers, and trailers that look like headers are dropped', async () => {
    await echo();
    const client = await openRaw(world.port);
    client.send(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n` +
        '3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\nTorpor-User: root\r\nAuthorization: x\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n',
    );
    const echoed = JSON.parse((await client.closed()).split('\r\n\r\n')[1] ?? '') as Echoed;
    expect(echoed).toMatchObject({ body: 'abcde', rawTrailers: ['X-Sum', '5'] });
  });

  it('keeps a Content-Length of 0', async () => {
    await echo();
    const echoed = (await get({ method: 'POST', headers: { 'Content-Length': '0' } })).json<Echoed>();
    expect(headersOf(echoed)).toMatchObject({ 'content-length': '0' });
  });

  it('of HTTP/1.0 gets a response that HTTP/1.0 allows', async () => {
    await world.serve(sandbox, (_, response) => {
      response.write('one ');
      response.end('two');
    });
    const client = await openRaw(world.port);
    client.send(`GET / HTTP/1.0\r\nHost: ${host}\r\n\r\n`);
    const text = await client.closed();
    expect(text).toMatch(/^HTTP\/1\.1 200 OK/);
    expect(text).toMatch(/\r\n\r\none two$/);
    expect(text.toLowerCase()).not.toContain('transfer-encoding');
  });

  it('that is pipelined waits for the response to the one before it', async () => {
    const seen: string[] = [];
    await world.serve(sandbox, async (request, response) => {
      seen.push(`${request.url} in`);
      await delay(request.url === '/1' ? 40 : 0);
      seen.push(`${request.url} out`);
      response.end(request.url);
    });
    const client = await openRaw(world.port);
    client.send([1, 2, 3].map((n) => `GET /${n} HTTP/1.1\r\nHost: ${host}\r\n\r\n`).join(''));
    await client.until(/\/3$/);
    client.socket.destroy();
    expect(seen).toEqual(['/1 in', '/1 out', '/2 in', '/2 out', '/3 in', '/3 out']);
  });
});

describe('Expect: 100-continue', () => {
  it('is passed on, and the client sends the body only when the app asks for it', async () => {
    const app = await world.serve(sandbox, () => {});
    app.removeAllListeners('request');
    const asked = Promise.withResolvers<IncomingMessage>();
    const { promise: go, resolve: letGo } = Promise.withResolvers<void>();
    app.on('checkContinue', async (request, response) => {
      asked.resolve(request);
      await go;
      response.writeContinue();
      response.end(await buffer(request));
    });
    const client = await openRaw(world.port);
    client.send(`PUT / HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n`);
    expect((await asked.promise).headers.expect).toBe('100-continue');
    expect(client.text()).toBe('');
    letGo();
    await client.until(/100 Continue/);
    client.send('hello');
    expect(await client.until(/hello$/)).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/);
    client.socket.destroy();
  });

  it('closes the connection after a final response without a 100, because the body may come or not', async () => {
    const app = await world.serve(sandbox, () => {});
    app.removeAllListeners('request');
    app.on('checkContinue', (_, response) => response.writeHead(413).end('too large'));
    const client = await openRaw(world.port);
    client.send(`PUT / HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n`);
    const text = await client.closed();
    expect(text).toMatch(/^HTTP\/1\.1 413 /);
    expect(text).toMatch(/connection: close/i);
  });

  it('is answered with 100 at once by the API', async () => {
    const client = await openRaw(world.port);
    client.send('PUT / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n');
    expect(await client.until(/the API/)).toMatch(/^HTTP\/1\.1 100 Continue/);
    client.socket.destroy();
  });
});

describe('a response', () => {
  it('arrives with its status, reason, and headers in their order and case', async () => {
    await world.serve(sandbox, (_, response) => {
      response.writeHead(418, 'Short And Stout', ['X-B', '1', 'x-a', '2', 'X-B', '3', 'Content-Length', '2']);
      response.end('ok');
    });
    const response = await open(world.port, host);
    expect(response.statusMessage).toBe('Short And Stout');
    const { rawHeaders } = await get();
    expect(rawHeaders.join('|')).toContain('X-B|1|x-a|2|X-B|3|Content-Length|2');
  });

  it('loses its hop-by-hop headers', async () => {
    await world.serveRaw(sandbox, (socket) => {
      socket.once('data', () =>
        socket.end(
          'HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=1\r\n' +
            'Proxy-Authenticate: x\r\nAlt-Svc: h3=":1"\r\nContent-Length: 2\r\n\r\nok',
        ),
      );
    });
    const { headers, text } = await get({ headers: { connection: 'keep-alive' } });
    expect(text).toBe('ok');
    for (const gone of ['x-hop', 'proxy-authenticate', 'alt-svc']) expect(headers).not.toHaveProperty(gone);
    expect(headers.connection).toBe('keep-alive');
  });

  it('may be streamed, and each piece is passed on at once', async () => {
    const next = Promise.withResolvers<void>();
    await world.serve(sandbox, async (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      await next.promise;
      response.write('data: 1\n\n');
    });
    const response = await open(world.port, host);
    expect(response.headers['content-type']).toBe('text/event-stream');
    next.resolve();
    const [chunk] = (await once(response, 'data')) as [Buffer];
    expect(chunk.toString()).toBe('data: 1\n\n');
    response.destroy();
  });

  it('may have trailers', async () => {
    await world.serve(sandbox, (_, response) => {
      response.writeHead(200, { Trailer: 'X-Sum' });
      response.write('abc');
      response.addTrailers({ 'X-Sum': '3', 'Set-Cookie': 'a=b; Domain=sbx.localhost' });
      response.end();
    });
    const { text, trailers, headers } = await get();
    expect({ text, trailers, trailer: headers.trailer }).toEqual({
      text: 'abc',
      trailers: { 'x-sum': '3' },
      trailer: 'X-Sum',
    });
  });

  it('may be preceded by informational responses', async () => {
    await world.serve(sandbox, (_, response) => {
      response.writeEarlyHints({ link: '</style.css>; rel=preload; as=style' });
      response.writeProcessing();
      response.end('ok');
    });
    const infos: unknown[] = [];
    const response = await new Promise<IncomingMessage>((resolve) => {
      const asked = httpRequest({ port: world.port, host: '127.0.0.1', headers: { host }, agent: false });
      asked.on('information', ({ statusCode, headers }) => infos.push([statusCode, headers['link']]));
      asked.on('response', resolve).end();
    });
    response.resume();
    expect(infos).toEqual([
      [103, '</style.css>; rel=preload; as=style'],
      [102, undefined],
    ]);
  });

  it.each([
    ['HEAD', 200, { 'content-length': '42' }],
    ['GET', 204, {}],
    ['GET', 304, { etag: '"x"' }],
  ] as const)('to %s with %i has no body, and the connection goes on', async (method, status, headers) => {
    await world.serve(sandbox, (_, response) => response.writeHead(status, headers).end());
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    for (let i = 0; i < 3; i++) {
      const answer = await get({ method, agent });
      expect(answer).toMatchObject({ status, text: '' });
      expect(answer.headers).toMatchObject(headers);
    }
    agent.destroy();
  });

  it('of an HTTP/1.0 app is passed on whole', async () => {
    await world.serveRaw(sandbox, (socket) => {
      socket.once('data', () =>
        socket.end('HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nold but whole'),
      );
    });
    const { text, headers } = await get();
    expect(text).toBe('old but whole');
    expect(headers['transfer-encoding']).toBe('chunked');
  });

  it('that begins before the request has ended gets through, and so does the rest of the request', async () => {
    const received = Promise.withResolvers<number>();
    await world.serve(sandbox, async (request, response) => {
      response.end('early');
      let bytes = 0;
      for await (const chunk of request) bytes += (chunk as Buffer).length;
      received.resolve(bytes);
    });
    const client = await openRaw(world.port);
    client.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 100000\r\n\r\n${'x'.repeat(50_000)}`);
    await client.until(/early$/);
    client.send('x'.repeat(50_000));
    expect(await received.promise).toBe(100_000);
    client.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await client.until(/early[\s\S]*early$/)).toMatch(/early[\s\S]*early$/);
    client.socket.destroy();
  });
});

describe('large bodies', () => {
  const MEGABYTE = 1024 * 1024;

  it('are downloaded whole, and only as fast as the client reads', async () => {
    let written = 0;
    await world.serve(sandbox, async (_, response) => {
      for (let i = 0; i < 64; i++) {
        const more = response.write(Buffer.alloc(MEGABYTE, i));
        written += MEGABYTE;
        if (!more) await once(response, 'drain');
      }
      response.end();
    });
    const response = await open(world.port, host);
    let before = -1;
    // All buffers on the way are full when no more bytes move.
    while (before !== written) {
      before = written;
      await delay(100);
    }
    expect(written).toBeLessThan(32 * MEGABYTE);
    let read = 0;
    for await (const chunk of response) read += (chunk as Buffer).length;
    expect(read).toBe(64 * MEGABYTE);
  });

  it('are uploaded whole, and only as fast as the app reads', async () => {
    const reading = Promise.withResolvers<void>();
    await world.serve(sandbox, async (request, response) => {
      await reading.promise;
      let bytes = 0;
      for await (const chunk of request) bytes += (chunk as Buffer).length;
      response.end(String(bytes));
    });
    const upload = httpRequest({
      port: world.port,
      host: '127.0.0.1',
      method: 'PUT',
      headers: { host, 'content-length': 64 * MEGABYTE },
      agent: false,
    });
    const answered = once(upload, 'response') as Promise<[IncomingMessage]>;
    let sent = 0;
    const send = async () => {
      for (let i = 0; i < 64; i++) {
        const more = upload.write(Buffer.alloc(MEGABYTE));
        sent += MEGABYTE;
        if (!more) await once(upload, 'drain');
      }
      upload.end();
    };
    const sending = send();
    let before = -1;
    while (before !== sent) {
      before = sent;
      await delay(100);
    }
    expect(sent).toBeLessThan(32 * MEGABYTE);
    reading.resolve();
    await sending;
    const [response] = await answered;
    expect((await buffer(response)).toString()).toBe(String(64 * MEGABYTE));
  });
});

describe('connections that break', () => {
  it("a client's abort before the response reaches the app", async () => {
    const gone = Promise.withResolvers<void>();
    const come = Promise.withResolvers<void>();
    await world.serve(sandbox, (request) => {
      request.on('close', gone.resolve);
      come.resolve();
    });
    const leaving = new AbortController();
    const asked = get({ signal: leaving.signal });
    await come.promise;
    leaving.abort();
    await expect(asked).rejects.toThrow();
    await gone.promise;
  });

  it("a client's abort in the middle of an upload reaches the app", async () => {
    const gone = Promise.withResolvers<void>();
    const come = Promise.withResolvers<void>();
    await world.serve(sandbox, (request) => {
      request.on('data', () => come.resolve());
      request.on('aborted', gone.resolve);
    });
    const client = await openRaw(world.port);
    client.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 100\r\n\r\nbegin`);
    await come.promise;
    client.socket.destroy();
    await gone.promise;
  });

  it("a client's abort in the middle of an upload reaches the app also after its response", async () => {
    const gone = Promise.withResolvers<void>();
    await world.serve(sandbox, (request, response) => {
      request.on('error', () => {});
      request.socket.on('close', () => gone.resolve());
      response.end('early');
      request.resume();
    });
    const client = await openRaw(world.port);
    client.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 100000\r\n\r\n${'x'.repeat(50_000)}`);
    await client.until(/early$/);
    client.socket.destroy();
    await gone.promise;
  });

  it('pipelined requests of a client that has left do not reach the app', async () => {
    const seen: string[] = [];
    const come = Promise.withResolvers<void>();
    const gone = Promise.withResolvers<void>();
    await world.serve(sandbox, (request, response) => {
      seen.push(request.url ?? '');
      if (request.url !== '/1') return void response.end();
      request.on('close', gone.resolve);
      come.resolve();
    });
    const client = await openRaw(world.port);
    client.send([1, 2, 3].map((n) => `GET /${n} HTTP/1.1\r\nHost: ${host}\r\n\r\n`).join(''));
    await come.promise;
    client.socket.destroy();
    await gone.promise;
    await ask(world.port, host, { path: '/last' });
    expect(seen).toEqual(['/1', '/last']);
  });

  it("a client's abort in the middle of a download reaches the app", async () => {
    const gone = Promise.withResolvers<void>();
    await world.serve(sandbox, (_, response) => {
      response.write('x');
      response.on('close', gone.resolve);
    });
    const response = await open(world.port, host);
    await once(response, 'data');
    response.destroy();
    await gone.promise;
  });

  it.each([
    ['of a known length', { 'content-length': '100' }],
    ['in chunks', {}],
  ])(
    'a response whose app dies in the middle of a body %s is never taken for a complete one',
    async (_, headers) => {
      let app: Socket | undefined;
      await world.serve(sandbox, (request, response) => {
        app = request.socket as Socket;
        response.writeHead(200, headers);
        response.write('half');
      });
      const response = await open(world.port, host);
      await once(response, 'data');
      app?.destroy();
      await expect(buffer(response)).rejects.toThrow();
    },
  );

  it('a trailer that cannot be passed on breaks the response off', async () => {
    await world.serveRaw(sandbox, (socket) => {
      const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
      socket.once('data', () => socket.write(`${head}2\r\nok\r\n0\r\nX-A: a\x01b\r\n\r\n`));
    });
    const client = await openRaw(world.port);
    client.socket.on('error', () => {});
    client.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await client.closed()).not.toMatch(/0\r\n/);
  });

  it('an app that closes without a response is reported as no_answer with dispatched: true', async () => {
    await world.serve(sandbox, (request) => void request.socket.destroy());
    const { status, text } = await get({ method: 'POST', body: 'x' });
    expect(status).toBe(502);
    expect(JSON.parse(text)).toMatchObject({
      error: { code: 'no_answer', retryable: false, details: { dispatched: true, port: 3000 } },
    });
  });

  it.each([
    ['something that is not HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['a header that cannot be passed on', 'HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 0\r\n\r\n'],
    ['an unrequested protocol switch', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n'],
  ])('an app that responds with %s is a 502', async (_, bytes) => {
    await world.serveRaw(sandbox, (socket) => void socket.once('data', () => socket.write(bytes)));
    expect((await get()).status).toBe(502);
  });
});

describe('connections to the app', () => {
  it('are reused', async () => {
    const ports = new Set<number | undefined>();
    await world.serve(sandbox, (request, response) => {
      ports.add(request.socket.remotePort);
      response.end('ok');
    });
    for (let i = 0; i < 20; i++) await get();
    expect(ports.size).toBe(1);
    expect(sandbox.dials).toBe(1);
  });

  it('that the app has closed meanwhile are replaced without an error', async () => {
    let requests = 0;
    await world.serve(sandbox, (request, response) => {
      requests++;
      response.end('ok');
      // As a server does whose keep-alive time is over: without `Connection: close`, right after the response.
      setImmediate(() => request.socket.destroy());
    });
    for (let i = 0; i < 50; i++) expect(await get()).toMatchObject({ status: 200, text: 'ok' });
    expect(requests).toBe(50);
  });

  it('that break while a read is sent are replaced, and the read is repeated', async () => {
    let connections = 0;
    await world.serveRaw(sandbox, (socket) => {
      const isFirst = ++connections === 1;
      let requests = 0;
      socket.on('data', () => {
        if (isFirst && ++requests === 2) socket.resetAndDestroy();
        else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      });
    });
    expect(await get()).toMatchObject({ status: 200 });
    expect(await get()).toMatchObject({ status: 200, text: 'ok' });
    expect(connections).toBe(2);
  });

  it('that break while a mutation is sent fail: the app may have acted on it', async () => {
    let connections = 0;
    await world.serveRaw(sandbox, (socket) => {
      connections++;
      let requests = 0;
      socket.on('data', () => {
        if (++requests === 2) socket.resetAndDestroy();
        else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      });
    });
    await get();
    const { status, text } = await get({ method: 'POST', body: 'x' });
    expect(status).toBe(502);
    expect(JSON.parse(text)).toMatchObject({ error: { details: { dispatched: true } } });
    expect(connections).toBe(1);
  });

  it('that send unrequested bytes carry no further request', async () => {
    await world.serveRaw(sandbox, (socket) => {
      socket.on('data', () =>
        socket.write(
          'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged',
        ),
      );
    });
    for (let i = 0; i < 5; i++) expect(await get()).toMatchObject({ text: 'ok' });
  });
});
