import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import {
  API_KEY,
  type FakeSandboxes,
  type GatewayWorld,
  makeGatewayWorld,
  openRaw,
} from '../../testing/index.ts';

let world: GatewayWorld;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;
beforeEach(async () => {
  world = await makeGatewayWorld({ settings: { goodbyeMs: 500 } });
  sandbox = world.sandboxes.make();
  host = world.hostOf(sandbox);
});
afterEach(() => world[Symbol.asyncDispose]());

/** An app that accepts WebSockets. */
async function sockets(
  options: ConstructorParameters<typeof WebSocketServer>[0] = {},
): Promise<WebSocketServer> {
  const app = await world.serve(sandbox, (_, response) => void response.writeHead(426).end('only sockets'));
  return new WebSocketServer({ server: app, ...options });
}

function connect(path = '/', headers: Record<string, string> = {}, protocols: string[] = []): WebSocket {
  const url = `ws://127.0.0.1:${world.port}${path}`;
  return new WebSocket(url, protocols, { headers: { host, ...headers } });
}

async function closeOf(socket: WebSocket): Promise<{ code: number; reason: string }> {
  const [code, reason] = (await once(socket, 'close')) as [number, Buffer];
  return { code, reason: reason.toString() };
}

describe('a WebSocket', () => {
  it('carries messages of any size both ways, in order', async () => {
    const app = await sockets();
    app.on('connection', (socket) =>
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
    );
    const client = connect('/chat?room=1');
    await once(client, 'open');
    const sent = [0, 1, 125, 126, 65_535, 65_536, 1_000_000].map((size, i) => Buffer.alloc(size, i));
    const echoed: Buffer[] = [];
    const all = new Promise<void>((resolve) => {
      client.on('message', (data: Buffer) => {
        echoed.push(data);
        if (echoed.length === sent.length) resolve();
      });
    });
    for (const message of sent) client.send(message);
    await all;
    expect(echoed.map((data, i) => data.equals(sent[i] ?? Buffer.of(0)))).toEqual(sent.map(() => true));
    client.close(4321, 'done here');
    expect(await closeOf(client)).toEqual({ code: 4321, reason: 'done here' });
  });

  it("passes on the app's own close frame", async () => {
    const app = await sockets();
    app.on('connection', (socket) => socket.close(4000, 'no more'));
    expect(await closeOf(connect())).toEqual({ code: 4000, reason: 'no more' });
  });

  it("hides Torpor's keys from the app, and passes on the other headers", async () => {
    const seen = Promise.withResolvers<Record<string, unknown>>();
    const app = await sockets();
    app.on('connection', (_, request) => seen.resolve(request.headers));
    const client = connect('/', { 'Torpor-User': 'x', 'X-Forwarded-For': '6.6.6.6', 'X-Api-Key': API_KEY }, [
      `torpor.key.${API_KEY}`,
      'chat',
    ]);
    await once(client, 'open');
    const headers = await seen.promise;
    expect(JSON.stringify(headers)).not.toContain(API_KEY);
    expect(headers).not.toHaveProperty('torpor-user');
    expect(headers).toMatchObject({
      host,
      'sec-websocket-protocol': 'chat',
      'x-forwarded-for': '127.0.0.1',
      upgrade: 'websocket',
    });
    client.terminate();
  });

  it("gets the app's refusal unchanged", async () => {
    await sockets({
      verifyClient: (_: unknown, decide: (ok: boolean, code: number, text: string) => void) =>
        decide(false, 403, 'not you'),
    });
    const client = connect();
    const [, response] = (await once(client, 'unexpected-response')) as [unknown, { statusCode: number }];
    expect(response.statusCode).toBe(403);
    client.on('error', () => {});
    client.terminate();
  });

  it("gets the gateway's refusal in the usual shape", async () => {
    world.sandboxes.become(sandbox.id, { state: 'killed' });
    const client = connect();
    client.on('error', () => {});
    const [, response] = (await once(client, 'unexpected-response')) as [
      unknown,
      NodeJS.ReadableStream & { statusCode: number },
    ];
    const [body] = (await once(response, 'data')) as [Buffer];
    expect(response.statusCode).toBe(410);
    expect(JSON.parse(body.toString())).toMatchObject({ error: { code: 'killed' } });
    client.terminate();
  });

  it('wakes a sandbox that sleeps, and waits for it', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    const app = await sockets();
    app.on('connection', (socket) => socket.send('awake'));
    const client = connect();
    const [message] = (await once(client, 'message')) as [Buffer];
    expect(message.toString()).toBe('awake');
    expect(sandbox.wakes).toHaveLength(1);
    client.terminate();
  });

  it('whose client leaves while the sandbox wakes does not reach the app', async () => {
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    const waking = Promise.withResolvers<void>();
    sandbox.onWake = () => waking.promise;
    const app = await sockets();
    let connections = 0;
    app.on('connection', () => connections++);
    const client = connect();
    client.on('error', () => {});
    while (world.gateway.queuedRequests === 0) await new Promise(setImmediate);
    client.terminate();
    while (world.gateway.queuedRequests > 0) await new Promise(setImmediate);
    waking.resolve();
    const other = connect();
    await once(other, 'open');
    expect(connections).toBe(1);
    other.terminate();
  });

  it("ends with the client's connection", async () => {
    const app = await sockets();
    const gone = new Promise<number>((resolve) => {
      app.on('connection', (socket) => socket.on('close', resolve));
    });
    const client = connect();
    await once(client, 'open');
    client.terminate();
    expect(await gone).toBe(1006);
  });

  it("ends with the app's connection", async () => {
    const app = await sockets();
    app.on('connection', (socket) => socket.terminate());
    expect((await closeOf(connect())).code).toBe(1006);
  });

  it('moves bytes only as fast as the reader takes them', async () => {
    let app: Duplex | undefined;
    await world.serveRaw(sandbox, (socket) => {
      app = socket;
      socket.once('data', () => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
        const frame = Buffer.concat([Buffer.from([0x82, 126, 0xff, 0xff]), Buffer.alloc(65_535)]);
        for (let i = 0; i < 800; i++) socket.write(frame);
      });
    });
    const client = await openRaw(world.port);
    client.socket.pause();
    client.send(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n`,
    );
    let before = -1;
    while (before !== app?.writableLength || app === undefined) {
      before = app?.writableLength ?? -1;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    // Most bytes wait in the writer's buffer.
    expect(app.writableLength).toBeGreaterThan(20 * 1024 * 1024);
    client.socket.destroy();
  });

  it('is the only protocol that a connection can be upgraded to', async () => {
    await world.serve(sandbox, (request, response) => response.end(`plain ${request.headers.upgrade}`));
    const client = await openRaw(world.port);
    client.send(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n`,
    );
    expect(await client.until(/plain/)).toMatch(/^HTTP\/1\.1 200 OK[\s\S]*plain undefined/);
    client.socket.destroy();
  });
});

describe('a WebSocket whose sandbox is paused', () => {
  it('is closed with code 1012, and its app with code 1001', async () => {
    const app = await sockets();
    const left = new Promise<number>((resolve) => {
      app.on('connection', (socket) => socket.on('close', resolve));
    });
    const client = connect();
    await once(client, 'open');
    const closed = closeOf(client);
    await world.gateway.gates.close(sandbox.id);
    await world.gateway.gates.drain(sandbox.id, new AbortController().signal);
    expect(await closed).toEqual({ code: 1012, reason: 'sleeping, come back' });
    expect(await left).toBe(1001);
    await world.gateway.gates.abortExchanges(sandbox.id);
    await world.gateway.gates.open(sandbox.id);
  });

  it('gets the whole current frame before the close frame', async () => {
    let app: Socket | undefined;
    await world.serveRaw(sandbox, (socket) => {
      app = socket;
      socket.once('data', () => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
        socket.write(Buffer.from([0x81, 0x05, 0x68, 0x65]));
      });
    });
    const client = await openRaw(world.port);
    client.send(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n`,
    );
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the bytes of a frame
    await client.until(/\x81\x05he$/);
    await world.gateway.gates.close(sandbox.id);
    const drained = world.gateway.gates.drain(sandbox.id, new AbortController().signal);
    app?.write(Buffer.from([0x6c, 0x6c, 0x6f, 0x81, 0x01, 0x21]));
    await drained;
    const text = await client.closed();
    expect(text.split('\r\n\r\n')[1]).toBe('\x81\x05hello\x88\x15\x03\xf4sleeping, come back');
    await world.gateway.gates.open(sandbox.id);
  });

  it('is broken off when a frame does not end in time', async () => {
    await world.serveRaw(sandbox, (socket) => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
        socket.write(Buffer.from([0x81, 0x05, 0x68, 0x65]));
      });
    });
    const client = await openRaw(world.port);
    client.send(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n`,
    );
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the bytes of a frame
    await client.until(/\x81\x05he$/);
    await world.gateway.gates.close(sandbox.id);
    await world.gateway.gates.drain(sandbox.id, AbortSignal.timeout(50));
    await world.gateway.gates.abortExchanges(sandbox.id);
    expect((await client.closed()).split('\r\n\r\n')[1]).toBe('\x81\x05he');
    await world.gateway.gates.open(sandbox.id);
  });

  it('is closed with the same code when it was just opening', async () => {
    const answer = Promise.withResolvers<void>();
    const inside = Promise.withResolvers<void>();
    await sockets({
      verifyClient: (_, accept) => {
        inside.resolve();
        answer.promise.then(() => accept(true));
      },
    });
    const closed = closeOf(connect());
    await inside.promise;
    await world.gateway.gates.close(sandbox.id);
    const drained = world.gateway.gates.drain(sandbox.id, new AbortController().signal);
    answer.resolve();
    await drained;
    expect((await closed).code).toBe(1012);
    await world.gateway.gates.abortExchanges(sandbox.id);
    await world.gateway.gates.open(sandbox.id);
  });

  it('is closed with the same code when the sandbox resets its connections first', async () => {
    let inside: Socket | undefined;
    const app = await sockets();
    app.on('connection', (_, request) => {
      inside = request.socket;
    });
    const client = connect();
    await once(client, 'open');
    const closed = closeOf(client);
    await world.gateway.gates.close(sandbox.id);
    inside?.resetAndDestroy();
    expect((await closed).code).toBe(1012);
    await world.gateway.gates.abortExchanges(sandbox.id);
    await world.gateway.gates.open(sandbox.id);
  });

  it('may connect again at once, and is queued until the sandbox runs', async () => {
    const app = await sockets();
    app.on('connection', (socket) => socket.on('message', (data) => socket.send(data)));
    const client = connect();
    await once(client, 'open');
    const closed = closeOf(client);
    const { gates } = world.gateway;
    await gates.close(sandbox.id);
    await gates.drain(sandbox.id, new AbortController().signal);
    await closed;
    const again = connect();
    again.on('open', () => again.send('back'));
    await gates.abortExchanges(sandbox.id);
    world.sandboxes.become(sandbox.id, { state: 'paused' });
    await gates.open(sandbox.id);
    const [message] = (await once(again, 'message')) as [Buffer];
    expect(message.toString()).toBe('back');
    expect(sandbox.wakes).toHaveLength(1);
    again.terminate();
  });
});
