import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { createServer, type Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import {
  ask,
  type FakeSandboxes,
  type HopNode,
  type HopNodeOptions,
  type HopWorld,
  makeHopWorld,
  open,
  openRaw,
} from '../../testing/index.ts';
import { HOP_HEADER } from './hop-signature.ts';

let world: HopWorld;
let a: HopNode;
let b: HopNode;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;

async function make(options: Readonly<Record<string, HopNodeOptions>> = { a: {}, b: {} }): Promise<void> {
  world = await makeHopWorld(options);
  a = world.nodes['a'] as HopNode;
  b = world.nodes['b'] as HopNode;
  sandbox = b.sandboxes.make();
  world.homes.set(sandbox.id, 'b');
  host = a.hostOf(sandbox);
}
beforeEach(() => make());
afterEach(() => world[Symbol.asyncDispose]());

async function remake(options: Readonly<Record<string, HopNodeOptions>>): Promise<void> {
  await world[Symbol.asyncDispose]();
  await make(options);
}

describe('a request about a sandbox of another node', () => {
  it('is passed on as it is, with its method, path, headers, body and answer', async () => {
    await b.serve(sandbox, async (request, response) => {
      const body = await text(request);
      response.writeHead(201, { 'x-app': 'yes', 'set-cookie': ['a=1', 'b=2'] });
      response.end(`${request.method} ${request.url} ${request.headers['x-mine']} ${body}`);
    });
    const answer = await ask(a.port, host, {
      method: 'PUT',
      path: '/some/where?x=%20y',
      headers: { 'x-mine': 'mine' },
      body: 'the body',
    });
    expect(answer).toMatchObject({ status: 201, text: 'PUT /some/where?x=%20y mine the body' });
    expect(answer.headers).toMatchObject({ 'x-app': 'yes', 'set-cookie': ['a=1', 'b=2'] });
  });

  it('reaches the app with the host and address of its client, and without the header of the hop', async () => {
    await b.serve(sandbox, (request, response) => void response.end(JSON.stringify(request.headers)));
    const headers = (await ask(a.port, host, { localAddress: '127.0.0.5' })).json();
    expect(headers).toMatchObject({
      host,
      'x-forwarded-for': '127.0.0.5',
      'x-forwarded-host': host,
      'x-forwarded-port': String(a.port),
    });
    expect(Object.keys(headers).filter((name) => name.startsWith('torpor'))).toEqual([]);
  });

  it('is found by headers, by the path form, and by the paths of both APIs', async () => {
    await remake({ a: {}, b: { api: (request, response) => void response.end(`b has ${request.url}`) } });
    await b.serve(sandbox, (request, response) => void response.end(`app has ${request.url}`));
    const own = `127.0.0.1:${a.port}`;
    const byHeaders = { 'torpor-sandbox': sandbox.id, 'torpor-port': '3000' };
    expect((await ask(a.port, own, { path: '/x', headers: byHeaders })).text).toBe('app has /x');
    for (const path of [
      `/v1/sandboxes/${sandbox.id}`,
      `/v1/sandboxes/${sandbox.bare}/exec?x=1`,
      `/v1/admin/sandboxes/${sandbox.id}/pause`,
      `/sandboxes/${sandbox.bare}`,
      `/v2/sandboxes/${sandbox.bare}/logs`,
      `/v1/sandboxes/sbx%5F${sandbox.bare}`,
    ])
      expect((await ask(a.port, own, { path })).text, path).toBe(`b has ${path}`);
    for (const path of ['/v1/sandboxes', '/v1/sandboxes?x=1', '/sandboxes/metrics', '/v1/templates'])
      expect((await ask(a.port, own, { path })).text, path).toBe('the API');
  });

  it('streams both ways at once, and keeps trailers', async () => {
    await b.serve(sandbox, async (request, response) => {
      response.writeHead(200, { trailer: 'x-sum' });
      for await (const chunk of request) response.write(`got ${chunk}`);
      response.addTrailers({ 'x-sum': String(request.trailers['x-sent']) });
      response.end();
    });
    const outgoing = httpRequest({
      host: '127.0.0.1',
      port: a.port,
      method: 'POST',
      headers: { host, trailer: 'x-sent', te: 'trailers' },
    });
    outgoing.write('one');
    const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
    const [first] = (await once(response, 'data')) as [Buffer];
    expect(String(first)).toBe('got one');
    outgoing.addTrailers({ 'x-sent': '42' });
    outgoing.end('two');
    expect(await text(response)).toBe('got two');
    expect(response.trailers).toEqual({ 'x-sum': '42' });
  });

  it('lets a client wait for 100 Continue of the app', async () => {
    const app = await b.serve(sandbox, (_, response) => void response.end('not asked'));
    app.on('checkContinue', async (request: IncomingMessage, response) => {
      if (request.headers['x-refuse'] !== undefined) return void response.writeHead(417).end();
      response.writeContinue();
      response.end(await text(request));
    });
    const send = (headers: Record<string, string>) =>
      httpRequest({
        host: '127.0.0.1',
        port: a.port,
        method: 'POST',
        headers: { host, expect: '100-continue', ...headers },
      });
    const taken = send({});
    taken.flushHeaders();
    await once(taken, 'continue');
    taken.end('the body');
    expect(await text(((await once(taken, 'response')) as [IncomingMessage])[0])).toBe('the body');
    const refused = send({ 'x-refuse': '1' });
    refused.flushHeaders();
    const [{ statusCode }] = (await once(refused, 'response')) as [IncomingMessage];
    expect(statusCode).toBe(417);
    refused.destroy();
  });

  it('moves no faster than the slower side reads', async () => {
    const size = 64 * 1024 * 1024;
    let written = 0;
    await b.serve(sandbox, async (_, response) => {
      response.writeHead(200);
      const piece = Buffer.alloc(1024 * 1024);
      for (; written < size; written += piece.length)
        if (!response.write(piece)) await once(response, 'drain');
      response.end();
    });
    const response = await open(a.port, host);
    response.pause();
    await delay(300);
    expect(written).toBeLessThan(size);
    expect((await buffer(response)).length).toBe(size);
  });

  it('ends at the app when its client leaves', async () => {
    const left = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    await b.serve(sandbox, (_, response) => {
      response.on('close', () => left.resolve());
      arrived.resolve();
    });
    const leaving = new AbortController();
    const answer = open(a.port, host, { signal: leaving.signal });
    await arrived.promise;
    leaving.abort();
    await expect(answer).rejects.toThrow();
    await left.promise;
  });

  it('becomes a WebSocket, which carries messages both ways and its close code', async () => {
    const app = await b.serve(sandbox, (_, response) => void response.writeHead(426).end());
    new WebSocketServer({ server: app }).on('connection', (socket) => {
      socket.on('message', (data) => socket.send(`echo ${data}`));
      socket.on('close', (code) => void code);
    });
    const client = new WebSocket(`ws://127.0.0.1:${a.port}/chat`, { headers: { host } });
    await once(client, 'open');
    client.send('hello');
    expect(String((await once(client, 'message'))[0])).toBe('echo hello');
    client.close(4321, 'done');
    expect((await once(client, 'close'))[0]).toBe(4321);
  });

  it('gets the refusal of an upgrade as a response', async () => {
    await b.serve(sandbox, (_, response) => void response.end());
    sandbox.ports.delete(3000);
    const client = new WebSocket(`ws://127.0.0.1:${a.port}/`, { headers: { host } });
    const [, response] = (await once(client, 'unexpected-response')) as [unknown, IncomingMessage];
    expect(response.statusCode).toBe(502);
    client.on('error', () => {});
    client.terminate();
  });

  it('uses the connection between the nodes again, and asks the directory rarely', async () => {
    const connections = new Set<Socket>();
    b.server.on('connection', (socket: Socket) => connections.add(socket));
    await b.serve(sandbox, (_, response) => void response.end('ok'));
    for (let i = 0; i < 20; i++) expect((await ask(a.port, host)).status).toBe(200);
    expect(connections.size).toBe(1);
    expect(a.lookUps()).toBe(1);
    // The first request opens the way into the sandbox, which proves that it runs there.
    expect(b.lookUps()).toBe(1);
  });

  it('keeps the order of pipelined requests', async () => {
    await b.serve(sandbox, async (request, response) => {
      if (request.url === '/slow') await delay(50);
      response.end(`<${request.url}>`);
    });
    const client = await openRaw(a.port);
    const lines = (path: string) => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    client.send(lines('/slow') + lines('/fast') + lines('/last'));
    const received = await client.until(/<\/last>/);
    expect(received.match(/<\/\w+>/g)).toEqual(['</slow>', '</fast>', '</last>']);
    client.socket.destroy();
  });
});

describe('a client over HTTP/2', () => {
  it('is passed on over HTTP/1.1 with its authority, scheme and body', async () => {
    const { mkdtemp, rm } = await import('node:fs/promises');
    const { localCertificate } = await import('../tls/local-authority.ts');
    const { systemClock } = await import('@torpor/engine');
    const { randomBytes } = await import('node:crypto');
    const directory = await mkdtemp('/tmp/torpor-hop-');
    const tls = await localCertificate(
      { directory, clock: systemClock, randomBytes },
      'sbx.localhost',
      '127.0.0.1',
    );
    await remake({ a: { tls }, b: {} });
    await b.serve(sandbox, async (request, response) => {
      const { host: seen, cookie, 'x-forwarded-proto': scheme } = request.headers;
      response.end(`${seen} ${scheme} ${cookie} ${await text(request)}`);
    });
    const session = connectHttp2(`https://127.0.0.1:${a.port}`, { rejectUnauthorized: false });
    const stream = session.request({
      ':method': 'POST',
      ':path': '/',
      ':authority': host,
      cookie: ['a=1', 'b=2'],
    });
    stream.end('the body');
    expect(await text(stream)).toBe(`${host} https a=1; b=2 the body`);
    session.close();
    await rm(directory, { recursive: true });
  });
});

describe('the header of a hop', () => {
  const forged =
    'v1 a b 1 00000000000000000000000000000000 1 6.6.6.6 https 443 0000000000000000000000000000000000000000000000000000000000000000';

  it.each([
    ['that is forged', forged, 'wrong_secret'],
    ['that is nonsense', 'let me in', 'malformed'],
    ['that is empty', '', 'malformed'],
  ])('%s is refused, and nothing sees the request', async (_, header, why) => {
    let seen = 0;
    await b.serve(sandbox, (_request, response) => {
      seen++;
      response.end();
    });
    const answer = await ask(b.port, b.hostOf(sandbox), { headers: { [HOP_HEADER]: header } });
    expect(answer.status).toBe(403);
    expect(answer.json()).toMatchObject({
      error: { code: 'forbidden', details: { dispatched: false, why } },
    });
    expect(b.refusedHops).toEqual([why]);
    expect(seen).toBe(0);
  });

  it('is accepted once, by one node, for one request', async () => {
    await b.serve(sandbox, (request, response) => void response.end(request.headers['x-forwarded-for']));
    const client = { remoteAddress: '192.0.2.7', scheme: 'http', localPort: 80 } as const;
    const signed = { method: 'GET', target: '/', host };
    const header = a.signer.sign('b', signed, client);
    const send = (node: HopNode, more = {}) =>
      ask(node.port, host, { headers: { [HOP_HEADER]: header }, ...more });
    expect((await send(b, { path: '/other' })).status).toBe(403);
    expect((await send(b, { method: 'POST' })).status).toBe(403);
    expect((await send(b)).text).toBe('192.0.2.7');
    expect((await send(b)).json()).toMatchObject({ error: { details: { why: 'repeated' } } });
    expect((await send(a)).json()).toMatchObject({ error: { details: { why: 'other_node' } } });
  });

  it('of a node with another cluster secret is refused, and the client is told which node refuses', async () => {
    await remake({ a: { secrets: [Buffer.from('another secret')] }, b: {} });
    const answer = await ask(a.port, host);
    expect(answer.status).toBe(503);
    expect(answer.json()).toMatchObject({
      error: { code: 'unreachable', details: { dispatched: false, node: 'b' } },
    });
    expect(b.refusedHops).toEqual(['wrong_secret']);
  });

  it('of a node whose clock differs by a minute is refused', async () => {
    await remake({ a: { now: () => Date.now() + 60_000 }, b: {} });
    expect((await ask(a.port, host)).status).toBe(503);
    expect(b.refusedHops).toEqual(['wrong_time']);
  });

  it('is accepted with the old and with the new secret while a secret is replaced', async () => {
    const [old, fresh] = [Buffer.from('old'), Buffer.from('new')];
    await remake({ a: { secrets: [old, fresh] }, b: { secrets: [fresh, old] } });
    await b.serve(sandbox, (_, response) => void response.end('ok'));
    expect((await ask(a.port, host)).text).toBe('ok');
    const own = a.sandboxes.make();
    world.homes.set(own.id, 'a');
    await a.serve(own, (_, response) => void response.end('ok too'));
    expect((await ask(b.port, b.hostOf(own))).text).toBe('ok too');
  });

  it('from a client does not reach the other node', async () => {
    const answer = await ask(a.port, host, { headers: { [HOP_HEADER]: forged } });
    expect(answer.status).toBe(403);
    expect(b.refusedHops).toEqual([]);
  });
});

describe('a request that was passed on', () => {
  it('is never passed on again, and is refused when every node says that the sandbox lives elsewhere', async () => {
    await remake({ a: {}, b: {}, c: {} });
    const ids: string[] = [];
    for (const node of Object.values(world.nodes)) node.server.on('request', () => ids.push(node.name));
    // Every node believes that `b` has it, and so does `b`.
    world.homes.set(sandbox.id, { is: 'elsewhere', node: 'b', address: world.addresses.get('b') ?? '' });
    const answer = await ask(a.port, host);
    expect(answer.status).toBe(503);
    expect(answer.json()).toMatchObject({ error: { code: 'unreachable', details: { dispatched: false } } });
    // One request of the client, and two attempts.
    expect(ids).toEqual(['a', 'b', 'b']);
  });

  it('is looked up again and sent once more, with its body, when the sandbox has moved', async () => {
    await remake({ a: {}, b: {}, c: {} });
    const c = world.nodes['c'] as HopNode;
    await b.serve(sandbox, (_, response) => void response.end('from b'));
    expect((await ask(a.port, host)).text).toBe('from b');
    // The sandbox moves while `a` still remembers where it was.
    b.gateway.gates.gateFor(sandbox.id).abortExchanges();
    b.gateway.gates.gateFor(sandbox.id).open();
    world.homes.set(sandbox.id, 'c');
    const moved = Object.assign(c.sandboxes.make(), {});
    Object.assign(moved.info, { id: sandbox.id });
    c.sandboxes.adopt(sandbox.id, moved);
    await c.serve(moved, async (request, response) => void response.end(`from c: ${await text(request)}`));
    const answer = await ask(a.port, host, { method: 'POST', body: 'x'.repeat(1_000) });
    expect(answer.text).toBe(`from c: ${'x'.repeat(1_000)}`);
  });

  it('is answered by the node that it was placed on, although that node would choose another one', async () => {
    await b.serve(sandbox, (_, response) => void response.end('ok'));
    const address = world.addresses.get('b') ?? '';
    world.homes.set(sandbox.id, { is: 'elsewhere', node: 'b', address, isPlaced: true });
    expect((await ask(a.port, host)).text).toBe('ok');
  });

  it('cannot be asked back by an app that claims that its sandbox has moved', async () => {
    let seen = 0;
    await b.serve(sandbox, (_, response) => {
      seen++;
      response.writeHead(503, { 'torpor-hop-result': 'elsewhere' }).end('no');
    });
    const answer = await ask(a.port, host);
    expect(answer).toMatchObject({ status: 503, text: 'no' });
    expect(answer.headers['torpor-hop-result']).toBeUndefined();
    expect(seen).toBe(1);
  });
});

describe('a node that does not answer', () => {
  it('is named when its lease has ended', async () => {
    world.homes.set(sandbox.id, { is: 'unreachable', node: 'b', since: 1_000 });
    const answer = await ask(a.port, host);
    expect(answer.status).toBe(503);
    expect(answer.json()).toMatchObject({
      error: {
        code: 'unreachable',
        sandboxId: sandbox.id,
        details: { dispatched: false, node: 'b', since: 1_000 },
      },
    });
  });

  it('gives 503 with dispatched: false when no connection can be opened', async () => {
    world.addresses.set('b', 'http://127.0.0.1:1');
    const answer = await ask(a.port, host, { method: 'POST', body: 'x' });
    expect(answer.status).toBe(503);
    expect(answer.json()).toMatchObject({
      error: { code: 'unreachable', retryable: true, details: { dispatched: false, node: 'b' } },
    });
  });

  it('gives 503 with dispatched: "unknown" when the connection breaks after the request left', async () => {
    const broken = createServer((socket) => socket.once('data', () => socket.destroy()));
    broken.listen(0, '127.0.0.1');
    await once(broken, 'listening');
    world.addresses.set('b', `http://127.0.0.1:${(broken.address() as { port: number }).port}`);
    const answer = await ask(a.port, host, { method: 'POST', body: 'x' });
    expect(answer.status).toBe(503);
    expect(answer.json()).toMatchObject({
      error: { code: 'unreachable', retryable: false, details: { dispatched: 'unknown', node: 'b' } },
    });
    await new Promise((resolve) => broken.close(resolve));
  });

  it('breaks the response off when it breaks off in the middle', async () => {
    await b.serve(sandbox, (_, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('half', () => response.destroy());
    });
    const response = await open(a.port, host);
    await expect(buffer(response)).rejects.toThrow();
  });
});
