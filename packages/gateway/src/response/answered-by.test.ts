import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '@torpor/engine';
import { ANSWERED_BY_HEADER } from '@torpor/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import {
  API_KEY,
  type Asked,
  ask,
  type FakeSandboxes,
  type GatewayWorld,
  makeGatewayWorld,
  openRaw,
} from '../../testing/index.ts';
import { localCertificate } from '../tls/local-authority.ts';

const NAME = ANSWERED_BY_HEADER.toLowerCase();
const BROWSER = { accept: 'text/html', 'sec-fetch-mode': 'navigate' };

let world: GatewayWorld;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;
beforeEach(async () => {
  world = await makeGatewayWorld({
    settings: { momentMs: 20, failureMs: 20, lookAgainMs: 5, portGraceMs: 5 },
  });
  sandbox = world.sandboxes.make();
  host = world.hostOf(sandbox);
});
afterEach(() => world[Symbol.asyncDispose]());

const get = (asked: Asked = {}) => ask(world.port, host, asked);

/** Resolves with the response to a WebSocket handshake, whatever its status. */
async function shakeHands(): Promise<IncomingMessage> {
  const client = new WebSocket(`ws://127.0.0.1:${world.port}/`, { headers: { host } });
  client.on('error', () => {});
  const [response] = (await Promise.race([
    once(client, 'upgrade'),
    once(client, 'unexpected-response').then(([, refusal]) => [refusal]),
  ])) as [IncomingMessage];
  client.terminate();
  return response;
}

describe("the gateway's own response", () => {
  it.each([
    ['a killed sandbox', { state: 'killed' }, {}, 410],
    ['a lost sandbox', { state: 'lost' }, {}, 410],
    ['a paused sandbox whose autoResume is off', { state: 'paused', autoResume: false }, {}, 409],
    ['a closed port', { state: 'running' }, {}, 502],
    ['a closed port, as a page', { state: 'running' }, { headers: BROWSER }, 502],
    ['a private preview', { preview: 'private' }, {}, 403],
    ['a TRACE request', {}, { method: 'TRACE' }, 400],
    ['a HEAD request', { state: 'killed' }, { method: 'HEAD' }, 410],
    ['the status of a waiting page', {}, { path: '/.well-known/torpor/status' }, 200],
  ] as const)('says so for %s', async (_, facts, asked, status) => {
    world.sandboxes.become(sandbox.id, facts);
    const answer = await get(asked);
    expect(answer).toMatchObject({ status, headers: { [NAME]: 'gateway' } });
  });

  it('has the header for a sandbox that does not exist, and for an invalid host', async () => {
    const unknown = await ask(world.port, `3000-${'z'.repeat(20)}.sbx.localhost:${world.port}`);
    expect(unknown).toMatchObject({ status: 404, headers: { [NAME]: 'gateway' } });
    const nowhere = await ask(world.port, `no-port.sbx.localhost:${world.port}`);
    expect(nowhere.status).toBeGreaterThanOrEqual(400);
    expect(nowhere.headers[NAME]).toBe('gateway');
  });

  it('has the header on the waiting page', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    const woken = Promise.withResolvers<void>();
    sandbox.onWake = () => woken.promise;
    expect(await get({ headers: BROWSER })).toMatchObject({ status: 503, headers: { [NAME]: 'gateway' } });
    woken.resolve();
  });

  it('has the header for an app that closes without a response', async () => {
    await world.serveRaw(sandbox, (socket) => void socket.once('data', () => socket.destroy()));
    expect(await get({ method: 'POST' })).toMatchObject({ status: 502, headers: { [NAME]: 'gateway' } });
  });

  it("has the header in E2B's shape, and on the path form with and without a key", async () => {
    const agent = await ask(world.port, world.hostOf(sandbox, 49983), { path: '/files?path=/etc/passwd' });
    expect(agent).toMatchObject({ status: 401, headers: { [NAME]: 'gateway' } });
    const api = `127.0.0.1:${world.port}`;
    const path = `/v1/sandboxes/${sandbox.id}/ports/3000/`;
    expect(await ask(world.port, api, { path })).toMatchObject({
      status: 401,
      headers: { [NAME]: 'gateway' },
    });
    const closed = await ask(world.port, api, { path, headers: { 'x-api-key': API_KEY } });
    expect(closed).toMatchObject({ status: 502, headers: { [NAME]: 'gateway' } });
  });

  it('has the header when it refuses a WebSocket', async () => {
    world.sandboxes.become(sandbox.id, { state: 'killed' });
    expect(await shakeHands()).toMatchObject({ statusCode: 410, headers: { [NAME]: 'gateway' } });
  });

  it('has the header while the server stops', async () => {
    await world.gateway.stop(AbortSignal.abort());
    expect(await get()).toMatchObject({ status: 503, headers: { [NAME]: 'gateway' } });
  });
});

describe("an app's response", () => {
  it.each(['Torpor-Answered-By', 'torpor-answered-by', 'TORPOR-ANSWERED-BY'])(
    'cannot have the header as %s',
    async (name) => {
      await world.serveRaw(sandbox, (socket) => {
        socket.once('data', () =>
          socket.end(
            `HTTP/1.1 503 No\r\n${name}: gateway\r\n${name}:\tgateway\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nhi`,
          ),
        );
      });
      const answer = await get();
      expect(answer).toMatchObject({ status: 503, text: 'hi', headers: { 'x-kept': '1' } });
      expect(answer.headers).not.toHaveProperty(NAME);
    },
  );

  it('cannot have the header on the path form', async () => {
    await world.serve(sandbox, (_, response) => {
      response.writeHead(502, { [ANSWERED_BY_HEADER]: 'gateway' }).end();
    });
    const path = `/v1/sandboxes/${sandbox.id}/ports/3000/`;
    const answer = await ask(world.port, `127.0.0.1:${world.port}`, {
      path,
      headers: { 'x-api-key': API_KEY },
    });
    expect(answer.status).toBe(502);
    expect(answer.headers).not.toHaveProperty(NAME);
  });

  it('cannot have the header in trailers', async () => {
    await world.serve(sandbox, (_, response) => {
      response.writeHead(503, { Trailer: 'X-Sum' });
      response.write('abc');
      response.addTrailers({ 'X-Sum': '3', [ANSWERED_BY_HEADER]: 'gateway' });
      response.end();
    });
    expect((await get()).trailers).toEqual({ 'x-sum': '3' });
  });

  it('cannot have the header in an informational response', async () => {
    await world.serveRaw(sandbox, (socket) => {
      socket.once('data', () =>
        socket.end(
          'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nTorpor-Answered-By: gateway\r\n\r\n' +
            'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n',
        ),
      );
    });
    const hints: IncomingMessage['headers'][] = [];
    const asked = request({ port: world.port, host: '127.0.0.1', headers: { host }, agent: false });
    asked.on('information', ({ headers }) => void hints.push(headers)).end();
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    response.resume();
    expect(hints).toEqual([{ link: '</a>' }]);
  });

  it('cannot have the header when it accepts a WebSocket', async () => {
    const app = await world.serve(sandbox, () => {});
    const sockets = new WebSocketServer({ server: app });
    sockets.on('headers', (lines) => void lines.push('X-Kept: 1', `${ANSWERED_BY_HEADER}: gateway`));
    const { statusCode, headers } = await shakeHands();
    expect({ statusCode, kept: headers['x-kept'] }).toEqual({ statusCode: 101, kept: '1' });
    expect(headers).not.toHaveProperty(NAME);
  });

  it('cannot have the header when it refuses a WebSocket', async () => {
    const app = await world.serve(sandbox, () => {});
    app.on('upgrade', (_, socket) =>
      socket.end(`HTTP/1.1 503 No\r\n${ANSWERED_BY_HEADER}: gateway\r\nContent-Length: 0\r\n\r\n`),
    );
    const { statusCode, headers } = await shakeHands();
    expect(statusCode).toBe(503);
    expect(headers).not.toHaveProperty(NAME);
  });

  it('is passed on without the header to a client that reads byte by byte', async () => {
    await world.serve(sandbox, (_, response) => {
      response.writeHead(503, { [ANSWERED_BY_HEADER]: 'gateway', 'X-Kept': '1' }).end('no');
    });
    const client = await openRaw(world.port);
    client.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    const bytes = await client.closed();
    expect(bytes).toContain('X-Kept: 1');
    expect(bytes.toLowerCase()).not.toContain(NAME);
  });
});

describe('over HTTP/2', () => {
  it("the gateway's response has the header, and an app's cannot", async () => {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-answered-by-'));
    const files = { directory, clock: systemClock, randomBytes };
    const tls = await localCertificate(files, 'sbx.localhost', '127.0.0.1');
    await using secure = await makeGatewayWorld({ tls, settings: { portGraceMs: 5 } });
    const own = secure.sandboxes.make();
    await secure.serve(own, (_, response) => {
      response.writeEarlyHints({ link: ['</a>', '</b>'], [ANSWERED_BY_HEADER]: 'gateway' });
      response.writeHead(503, { [ANSWERED_BY_HEADER]: 'gateway', Trailer: 'X-Sum' });
      response.write('no');
      response.addTrailers({ 'X-Sum': '2', [ANSWERED_BY_HEADER]: 'gateway' });
      response.end();
    });
    const session = connectHttp2(`https://127.0.0.1:${secure.port}`, { rejectUnauthorized: false });
    const heads = async (port: number) => {
      const stream = session.request({ ':authority': secure.hostOf(own, port), ':path': '/' });
      const seen: Record<string, unknown>[] = [];
      for (const event of ['headers', 'response', 'trailers'])
        stream.on(event, (headers) => void seen.push({ ...headers }));
      stream.resume();
      await once(stream, 'close');
      return seen;
    };
    const ofApp = await heads(3000);
    expect(ofApp.map((head) => [head[':status'], head['link'] ?? head['x-sum'], head[NAME]])).toEqual([
      [103, '</a>, </b>', undefined],
      [503, undefined, undefined],
      [undefined, '2', undefined],
    ]);
    expect(await heads(4000)).toMatchObject([{ ':status': 502, [NAME]: 'gateway' }]);
    session.destroy();
    await rm(directory, { recursive: true });
  });
});
