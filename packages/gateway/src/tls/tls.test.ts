import { execFile } from 'node:child_process';
import { randomBytes, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { type ClientHttp2Session, connect as connectHttp2, constants } from 'node:http2';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { systemClock } from '@torpor/engine';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { type GatewayWorld, makeGatewayWorld } from '../../testing/index.ts';
import { localCertificate } from './local-authority.ts';

const run = promisify(execFile);
let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-tls-'));
});
afterEach(() => rm(directory, { recursive: true }));

const make = (domain = 'sbx.localhost', now = Date.now()) =>
  localCertificate(
    { directory: join(directory, 'tls'), clock: { ...systemClock, now: () => now }, randomBytes },
    domain,
    '127.0.0.1',
  );

describe('the local authority', () => {
  it('may sign for the preview domain and this machine, and for nothing else', async () => {
    const { cert, authorityFile } = await make();
    const certificate = new X509Certificate(cert);
    const authority = new X509Certificate(await readFile(authorityFile));
    expect(certificate.verify(authority.publicKey)).toBe(true);
    expect(authority.ca).toBe(true);
    expect(certificate.ca).toBe(false);
    for (const name of ['sbx.localhost', '3000-abc.sbx.localhost', 'api.sbx.localhost', 'localhost'])
      expect(certificate.checkHost(name), name).toBeDefined();
    for (const name of ['a.b.sbx.localhost', 'example.com', 'x.localhost'])
      expect(certificate.checkHost(name)).toBeUndefined();
    expect(certificate.checkIP('127.0.0.1')).toBeDefined();
  });

  it('has files that only the user of the server can read', async () => {
    const { authorityFile } = await make();
    expect((await stat(join(directory, 'tls'))).mode & 0o777).toBe(0o700);
    for (const file of ['ca-key.pem', 'server-key.pem'])
      expect((await stat(join(directory, 'tls', file))).mode & 0o777).toBe(0o600);
    expect(authorityFile).toBe(join(directory, 'tls', 'ca.pem'));
  });

  it('is created once; the server certificate is renewed before it expires, and for other names', async () => {
    const first = await make();
    const ca = await readFile(first.authorityFile, 'utf8');
    expect(await make()).toEqual(first);
    const later = await make('sbx.localhost', Date.now() + 380 * 24 * 3_600_000);
    expect(later.cert).not.toBe(first.cert);
    expect(await readFile(first.authorityFile, 'utf8')).toBe(ca);
    const other = await make('previews.example.com');
    expect(new X509Certificate(other.cert).checkHost('3000-x.previews.example.com')).toBeDefined();
    expect(await readFile(first.authorityFile, 'utf8')).not.toBe(ca);
  });

  it.skipIf(process.platform !== 'linux')('is accepted by openssl, within its name constraints', async () => {
    const { cert, authorityFile } = await make();
    const file = join(directory, 'server.pem');
    await writeFile(file, cert);
    const verified = await run('openssl', ['verify', '-x509_strict', '-CAfile', authorityFile, file]).catch(
      (e: Error & { code?: string }) => {
        if (e.code === 'ENOENT') return undefined;
        throw e;
      },
    );
    if (verified !== undefined) expect(verified.stdout).toContain('OK');
  });
});

describe('over TLS', () => {
  let world: GatewayWorld;
  let ca: string;
  let session: ClientHttp2Session | undefined;
  beforeEach(async () => {
    const { cert, key, authorityFile } = await make();
    ca = await readFile(authorityFile, 'utf8');
    world = await makeGatewayWorld({ tls: { cert, key } });
  });
  afterEach(async () => {
    session?.destroy();
    session = undefined;
    await world[Symbol.asyncDispose]();
  });

  function http2(host: string): ClientHttp2Session {
    const servername = host.replace(/:\d+$/, '');
    session = connectHttp2(`https://${host}`, {
      createConnection: () =>
        connectTls({ host: '127.0.0.1', port: world.port, servername, ca, ALPNProtocols: ['h2'] }),
    });
    return session;
  }

  async function ask2(client: ClientHttp2Session, headers: object, body?: string) {
    const stream = client.request({ ':path': '/', ...headers });
    stream.end(body);
    const trailers: Record<string, unknown> = {};
    stream.on('trailers', (fields) => Object.assign(trailers, fields));
    const [answered] = (await once(stream, 'response')) as [Record<string, unknown>];
    return { headers: answered, text: (await buffer(stream)).toString(), trailers };
  }

  it('HTTP/2 requests reach the app as HTTP/1.1, with verified forwarding headers', async () => {
    const sandbox = world.sandboxes.make();
    await world.serve(sandbox, async (request, response) => {
      const body = (await buffer(request)).toString();
      response.setHeader('set-cookie', ['a=1', 'b=2']);
      response.setHeader('trailer', 'x-sum');
      response.write(
        JSON.stringify({
          version: request.httpVersion,
          method: request.method,
          url: request.url,
          headers: request.headers,
          body,
        }),
      );
      response.addTrailers({ 'x-sum': '1' });
      response.end();
    });
    const host = world.hostOf(sandbox);
    const client = http2(host);
    const answer = await ask2(
      client,
      { ':method': 'POST', ':path': '/a?b', cookie: 'x=1', 'x-forwarded-proto': 'http' },
      'body',
    );
    expect(answer.headers).toMatchObject({ ':status': 200, 'set-cookie': ['a=1', 'b=2'] });
    expect(answer.trailers).toMatchObject({ 'x-sum': '1' });
    expect(JSON.parse(answer.text)).toMatchObject({
      version: '1.1',
      method: 'POST',
      url: '/a?b',
      body: 'body',
      headers: { host, cookie: 'x=1', 'x-forwarded-proto': 'https', 'x-forwarded-host': host },
    });
  });

  it('many streams of one connection are queued until the sandbox wakes', async () => {
    const sandbox = world.sandboxes.make({ state: 'paused' });
    await world.serve(sandbox, (request, response) => response.end(request.url));
    const client = http2(world.hostOf(sandbox));
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => ask2(client, { ':path': `/${i}` })),
    );
    expect(answers.map(({ text }) => text)).toEqual(answers.map((_, i) => `/${i}`));
    expect(sandbox.wakes).toHaveLength(1);
  });

  it('an app that dies in the middle of a body resets its stream only', async () => {
    const sandbox = world.sandboxes.make();
    await world.serve(sandbox, (request, response) => {
      if (request.url === '/whole') return void response.end('whole');
      response.write('half');
      setTimeout(() => request.socket.destroy(), 10);
    });
    const client = http2(world.hostOf(sandbox));
    const stream = client.request({ ':path': '/half' });
    stream.resume();
    const [error] = (await once(stream, 'error')) as [Error & { code: string }];
    expect(error.code).toBe('ERR_HTTP2_STREAM_ERROR');
    expect(stream.rstCode).toBe(constants.NGHTTP2_INTERNAL_ERROR);
    expect((await ask2(client, { ':path': '/whole' })).text).toBe('whole');
  });

  it("a client's reset of a stream reaches the app", async () => {
    const sandbox = world.sandboxes.make();
    const gone = Promise.withResolvers<void>();
    const come = Promise.withResolvers<void>();
    await world.serve(sandbox, (request) => {
      request.on('close', gone.resolve);
      come.resolve();
    });
    const stream = http2(world.hostOf(sandbox)).request({ ':path': '/' });
    stream.on('error', () => {});
    await come.promise;
    stream.close(constants.NGHTTP2_CANCEL);
    await gone.promise;
  });

  it('an upload whose stream is reset is not taken for a complete one', async () => {
    const sandbox = world.sandboxes.make();
    const ends: string[] = [];
    const come = Promise.withResolvers<void>();
    const gone = Promise.withResolvers<void>();
    await world.serve(sandbox, (request) => {
      request.on('data', () => come.resolve());
      for (const event of ['end', 'aborted']) request.on(event, () => ends.push(event));
      request.on('error', () => {});
      request.on('close', gone.resolve);
    });
    const stream = http2(world.hostOf(sandbox)).request({ ':path': '/', ':method': 'POST' });
    stream.on('error', () => {});
    stream.write('half of it');
    await come.promise;
    // `close` would first end the body.
    stream.destroy();
    await gone.promise;
    expect(ends).toEqual(['aborted']);
  });

  it('header injection: line feeds and zero bytes in a value do not reach the app', async () => {
    const sandbox = world.sandboxes.make();
    const reached: string[] = [];
    await world.serve(sandbox, (request, response) => {
      reached.push(...request.rawHeaders);
      response.end();
    });
    // The last value becomes a line break when each character is cut to its low byte.
    const values = ['a\r\nX-Injected: 1', 'a\nX-Injected: 1', 'a\0b', 'a\u010d\u010aX-Injected: 1'];
    for (const value of values) {
      const client = http2(world.hostOf(sandbox));
      client.on('error', () => {});
      await ask2(client, { 'x-a': value }).catch(() => {});
      client.destroy();
    }
    expect(reached).toContain('X-Forwarded-For');
    expect(reached).not.toContain('X-Injected');
    expect(reached).not.toContain('a\0b');
  });

  it('refusals have the usual shape', async () => {
    const sandbox = world.sandboxes.make({ state: 'killed' });
    const { headers, text } = await ask2(http2(world.hostOf(sandbox)), {});
    expect(headers).toMatchObject({ ':status': 410 });
    expect(JSON.parse(text)).toMatchObject({ error: { code: 'killed' } });
  });

  it('a request for another host is for the API', async () => {
    expect((await ask2(http2(`localhost:${world.port}`), {})).text).toBe('the API');
  });

  it('HTTP/1.1 and WebSockets work as well', async () => {
    const sandbox = world.sandboxes.make();
    const app = await world.serve(sandbox, (request, response) =>
      response.end(`plain ${request.headers['x-forwarded-proto']}`),
    );
    new WebSocketServer({ server: app }).on('connection', (socket) =>
      socket.on('message', (data) => socket.send(data)),
    );
    const host = world.hostOf(sandbox);
    const tls = { ca, servername: host.replace(/:\d+$/, ''), headers: { host } };
    const asked = httpsRequest({ host: '127.0.0.1', port: world.port, ...tls, agent: false });
    asked.end();
    const [response] = (await once(asked, 'response')) as [NodeJS.ReadableStream];
    expect((await buffer(response)).toString()).toBe('plain https');
    const socket = new WebSocket(`wss://127.0.0.1:${world.port}/`, tls);
    socket.on('open', () => socket.send('hello'));
    const [message] = (await once(socket, 'message')) as [Buffer];
    expect(message.toString()).toBe('hello');
    const closed = once(socket, 'close');
    await world.gateway.gates.close(sandbox.id);
    await world.gateway.gates.drain(sandbox.id, new AbortController().signal);
    expect((await closed)[0]).toBe(1012);
  });
});
