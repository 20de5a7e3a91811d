import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import {
  request as httpRequest,
  type IncomingMessage,
  type RequestOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { commonName, createAuthority, issueCertificate } from '@torpor/certificates';
import { systemClock, type UsableSecret } from '@torpor/engine';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { EgressAuthority } from './egress-authority.ts';
import { OpenedConnections, type OpenedRefusal } from './opened-connections.ts';

const VALUE = 'sk-very-secret';
const SECRET: UsableSecret = {
  name: 'KEY',
  host: 'api.example.com',
  header: 'Authorization',
  methods: null,
  path: null,
  content: `Bearer ${VALUE}`,
};

describe('an opened connection', () => {
  const parts = { now: Date.now(), days: 30, randomBytes };
  const trusted = createAuthority({ called: 'Test servers', names: null }, parts);
  const signed = (name: string, by = trusted) =>
    issueCertificate({ ...by, subject: commonName(by.cert) }, [name], parts);
  let directory: string;
  let authority: EgressAuthority;
  let certificate: string;
  let upstream: HttpsServer;
  let egress: Server;
  let secrets: readonly UsableSecret[];
  let requests: IncomingMessage[];
  let refused: OpenedRefusal[];
  let handle: (request: IncomingMessage, response: ServerResponse) => void;
  const clients: TLSSocket[] = [];

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-opened-'));
    authority = new EgressAuthority(directory, systemClock);
    ({ certificate } = await authority.trusted());
    upstream = createHttpsServer(signed('api.example.com'), (request, response) => {
      requests.push(request);
      handle(request, response);
    }).listen(0, '127.0.0.1');
    await once(upstream, 'listening');
    const opened = new OpenedConnections(authority, [trusted.cert]);
    egress = createServer({ allowHalfOpen: true }, (socket) => {
      void opened.serve(
        socket.on('error', () => {}),
        {
          name: 'api.example.com',
          port: 443,
          dial: async () => {
            const { port } = upstream.address() as AddressInfo;
            const dialled = connect(port, '127.0.0.1').on('error', () => {});
            await once(dialled, 'connect');
            return dialled;
          },
          secrets: async () => secrets,
          onRefused: (reason) => refused.push(reason),
        },
      );
    }).listen(0, '127.0.0.1');
    await once(egress, 'listening');
  });
  beforeEach(() => {
    secrets = [SECRET];
    requests = [];
    refused = [];
    handle = (_, response) => void response.end('ok');
  });
  afterEach(() => {
    for (const client of clients.splice(0)) client.destroy();
  });
  afterAll(async () => {
    upstream.close();
    upstream.closeAllConnections();
    egress.close();
    await rm(directory, { recursive: true });
  });

  const connected = async (servername = 'api.example.com', ALPNProtocols = ['http/1.1']) => {
    const { port } = egress.address() as AddressInfo;
    const client = connectTls({ port, host: '127.0.0.1', servername, ca: certificate, ALPNProtocols });
    clients.push(client.on('error', () => {}));
    await once(client, 'secureConnect');
    return client;
  };
  const sent = async (options: RequestOptions, body?: string) => {
    const socket = await connected();
    const request = httpRequest({
      ...options,
      createConnection: () => socket,
      headers: { host: 'api.example.com', ...options.headers },
    });
    request.end(body);
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    return { status: response.statusCode, headers: response.headers, body: await text(response) };
  };
  /** Writes bytes as they are, and reads until the connection ends. */
  const raw = async (bytes: string) => {
    const socket = await connected();
    socket.write(bytes);
    return text(socket);
  };

  it('replaces what the sandbox sent for the header, in any case and number', async () => {
    const socket = await connected();
    socket.write(
      'GET / HTTP/1.1\r\nHost: api.example.com\r\nauthorization: Bearer mine\r\nAUTHORIZATION: Basic x\r\n' +
        'Connection: close, authorization\r\n\r\n',
    );
    expect(await text(socket)).toContain('200 OK');
    const [got] = requests;
    const values = got?.rawHeaders.filter((_, i) => got.rawHeaders[i - 1]?.toLowerCase() === 'authorization');
    expect(values).toEqual([`Bearer ${VALUE}`]);
  });

  it('puts the secret only into requests with its methods, and at or below its path', async () => {
    secrets = [{ ...SECRET, methods: ['POST'], path: '/v1' }];
    for (const [method, path, gets] of [
      ['POST', '/v1', true],
      ['POST', '/v1/chat?a=b', true],
      ['GET', '/v1/chat', false],
      ['POST', '/v10', false],
      ['POST', '/v1/../admin', false],
      ['POST', '/v1/%2e%2e/admin', false],
      ['POST', '/v1//chat', false],
      ['POST', '/other?/v1', false],
    ] as const) {
      requests = [];
      expect(await sent({ method, path }), path).toMatchObject({ status: 200 });
      expect(requests[0]?.headers.authorization === `Bearer ${VALUE}`, `${method} ${path}`).toBe(gets);
    }
  });

  it('removes headers with which a server would read another method or path', async () => {
    await sent({ path: '/', headers: { 'X-HTTP-Method-Override': 'DELETE', 'X-Original-URL': '/admin' } });
    expect(Object.keys(requests[0]?.headers ?? {})).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/override|original/)]),
    );
  });

  it('uses a changed secret for the next request of the same connection, and none after its removal', async () => {
    const socket = await connected();
    const ask = async () => {
      socket.write('GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n');
      await once(socket, 'data');
      return requests.at(-1)?.headers.authorization;
    };
    expect(await ask()).toBe(`Bearer ${VALUE}`);
    secrets = [{ ...SECRET, content: 'Bearer other' }];
    expect(await ask()).toBe('Bearer other');
    secrets = [];
    expect(await ask()).toBeUndefined();
  });

  it.each([
    ['another Host', 'GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n', '421'],
    ['another port in Host', 'GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n', '421'],
    ['two Hosts', 'GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.example.com\r\n\r\n', '421'],
    ['no Host', 'GET / HTTP/1.1\r\n\r\n', '400'],
    ['a whole URL', 'GET https://evil.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n', '400'],
    ['TRACE', 'TRACE / HTTP/1.1\r\nHost: api.example.com\r\n\r\n', '405'],
    ['CONNECT', 'CONNECT evil.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n', ''],
    [
      'a WebSocket',
      'GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
      '501',
    ],
    [
      'two lengths',
      'POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde',
      '400',
    ],
    [
      'a length beside chunks',
      'POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      '400',
    ],
    [
      'an odd transfer encoding',
      'POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n',
      '400',
    ],
    ['a space before a colon', 'GET / HTTP/1.1\r\nHost : api.example.com\r\n\r\n', '400'],
    ['a bare line feed', 'GET / HTTP/1.1\r\nHost: api.example.com\nX: y\r\n\r\n', '400'],
    ['a head without end', `GET / HTTP/1.1\r\nHost: api.example.com\r\nX: ${'x'.repeat(100_000)}`, ''],
  ])('refuses %s, and sends nothing to the host', async (_, bytes, status) => {
    const answer = await raw(bytes);
    if (status !== '') expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status}`));
    expect(requests).toEqual([]);
    expect(answer).not.toContain(VALUE);
    expect(refused).toEqual(status === '421' ? ['wrong_host'] : []);
  });

  it('sends a hidden second request as what it is: the body of the first', async () => {
    handle = (request, response) => void text(request).then((body) => response.end(body));
    const hidden = 'GET /hidden HTTP/1.1\r\nHost: api.example.com\r\n\r\n';
    const length = hidden.length;
    const answer = await raw(
      `POST / HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\nContent-Length: ${length}\r\n\r\n${hidden}`,
    );
    expect(answer).toContain(hidden);
    expect(requests.map(({ url }) => url)).toEqual(['/']);
  });

  it('passes bodies on in both directions while they are sent', async () => {
    handle = (request, response) =>
      void request.on('data', (chunk) => response.write(chunk)).on('end', () => response.end());
    const socket = await connected();
    const request = httpRequest({
      method: 'POST',
      createConnection: () => socket,
      headers: { host: 'api.example.com' },
    });
    request.write('one');
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    expect(String((await once(response, 'data'))[0])).toBe('one');
    request.write('two');
    expect(String((await once(response, 'data'))[0])).toBe('two');
    request.end();
    await once(response, 'end');
  });

  it('hands a redirect to the sandbox and does not follow it', async () => {
    handle = (_, response) => void response.writeHead(302, { location: 'https://evil.example.com/' }).end();
    expect(await sent({ path: '/' })).toMatchObject({
      status: 302,
      headers: { location: 'https://evil.example.com/' },
    });
    expect(requests).toHaveLength(1);
  });

  it('breaks off when the response breaks off', async () => {
    handle = (_, response) =>
      void response.writeHead(200, { 'content-length': 10 }).write('half', () => response.destroy());
    await expect(sent({ path: '/' })).rejects.toThrow(/aborted|hang up/);
  });

  it('speaks HTTP/1.1 only', async () => {
    expect((await connected()).alpnProtocol).toBe('http/1.1');
    await expect(connected('api.example.com', ['h2'])).rejects.toThrow();
    expect(refused).toEqual([]);
  });

  it('sends nothing to a server whose certificate is not trusted or has another name', async () => {
    const stranger = createAuthority({ called: 'Stranger', names: null }, parts);
    for (const bad of [signed('api.example.com', stranger), signed('other.example.com')]) {
      upstream.setSecureContext(bad);
      expect(await sent({ path: '/' })).toMatchObject({ status: 502, body: expect.stringContaining('TLS') });
    }
    upstream.setSecureContext(signed('api.example.com'));
    expect(requests).toEqual([]);
    expect(refused).toEqual(['untrusted_server', 'untrusted_server']);
  });

  it('says so when the program does not trust the egress', async () => {
    const { port } = egress.address() as AddressInfo;
    const name = ['-servername', 'api.example.com', '-verify_return_error'];
    const asked = promisify(execFile)('openssl', ['s_client', '-connect', `127.0.0.1:${port}`, ...name]);
    asked.child.stdin?.end();
    await expect(asked).rejects.toThrow(/verify/);
    await expect.poll(() => refused).toEqual(['untrusted_egress']);
  });

  it('keeps the key of its authority in a file that only the server can read', async () => {
    expect((await stat(join(directory, 'tls', 'egress-ca-key.pem'))).mode & 0o777).toBe(0o600);
    expect(await new EgressAuthority(directory, systemClock).trusted()).toEqual(await authority.trusted());
  });
});
