import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  ask,
  askRaw,
  type FakeSandboxes,
  type GatewayWorld,
  makeGatewayWorld,
  openRaw,
} from '../../testing/index.ts';

/** Known attacks on proxies, each by its name. None may reach the app, or reach it as another request. */

let world: GatewayWorld;
let sandbox: ReturnType<FakeSandboxes['make']>;
let host: string;
let reached: string[];
beforeEach(async () => {
  world = await makeGatewayWorld();
  sandbox = world.sandboxes.make();
  host = world.hostOf(sandbox);
  reached = [];
  await world.serve(sandbox, (request, response) => {
    reached.push(`${request.method} ${request.url}`);
    request.resume();
    request.on('end', () => response.end('app'));
  });
});
afterEach(() => world[Symbol.asyncDispose]());

const statusOf = (text: string) => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]);
const raw = (lines: string[], body = '') => askRaw(world.port, lines, body);

describe('request smuggling', () => {
  const smuggled = `GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n`;

  it('CL.TE: a request with a length and chunks is refused', async () => {
    const text = await raw(
      ['POST / HTTP/1.1', `Host: ${host}`, 'Content-Length: 6', 'Transfer-Encoding: chunked'],
      `0\r\n\r\n${smuggled}`,
    );
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it('TE.CL: a request with chunks and a length is refused', async () => {
    const text = await raw(
      ['POST / HTTP/1.1', `Host: ${host}`, 'Transfer-Encoding: chunked', 'Content-Length: 4'],
      `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`,
    );
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it.each([
    ['xchunked', 'Transfer-Encoding: xchunked'],
    ['chunked, identity', 'Transfer-Encoding: chunked, identity'],
    ['gzip, chunked', 'Transfer-Encoding: gzip, chunked'],
    ['chunked twice', 'Transfer-Encoding: chunked, chunked'],
    ['a tab before it', 'Transfer-Encoding:\tchunked, x'],
    ['a blank before the colon', 'Transfer-Encoding : chunked'],
    ['in two headers', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: x'],
    ['with a vertical tab', 'Transfer-Encoding: \x0bchunked'],
  ])('TE.TE: a transfer coding written as %s is refused or ignored', async (_, header) => {
    const text = await raw(
      ['POST / HTTP/1.1', `Host: ${host}`, 'Content-Length: 5', header, 'Connection: close'],
      `0\r\n\r\n${smuggled}`,
    );
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it.each([
    ['two that differ', 'Content-Length: 5\r\nContent-Length: 6'],
    ['a list', 'Content-Length: 5, 5'],
    ['a sign', 'Content-Length: +5'],
    ['hexadecimal', 'Content-Length: 0x5'],
    ['letters', 'Content-Length: 5a'],
    ['nothing', 'Content-Length: '],
  ])('CL: %s is refused', async (_, header) => {
    const text = await raw(['POST / HTTP/1.1', `Host: ${host}`, header, 'Connection: close'], 'hello');
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it.each([
    ['a size with a sign', '+5\r\nhello\r\n0\r\n\r\n'],
    ['a size in another base', '0x5\r\nhello\r\n0\r\n\r\n'],
    ['a size that overflows', 'fffffffffffffffff1\r\nhello\r\n0\r\n\r\n'],
    ['a chunk longer than it says', '2\r\nhello\r\n0\r\n\r\n'],
    ['bare line feeds', '5\nhello\n0\n\n'],
  ])('chunks: %s is refused', async (_, body) => {
    const client = await openRaw(world.port);
    client.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n${body}`);
    const text = await client.closed();
    expect(text).not.toMatch(/^HTTP\/1\.1 200/);
  });

  it('obs-fold: a header that continues on the next line is refused', async () => {
    const text = await raw([
      'GET / HTTP/1.1',
      `Host: ${host}`,
      'X-A: b',
      ' Transfer-Encoding: chunked',
      'Connection: close',
    ]);
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it('header injection: line feeds and zero bytes in a value are refused', async () => {
    for (const value of ['a\nX-Injected: 1', 'a\rX-Injected: 1', 'a\0b']) {
      const text = await raw(['GET / HTTP/1.1', `Host: ${host}`, `X-A: ${value}`, 'Connection: close']);
      expect(statusOf(text), JSON.stringify(value)).toBe(400);
    }
    expect(reached).toEqual([]);
  });

  it.each([
    ['of a known length', `Content-Length: ${smuggled.length}`, smuggled],
    [
      'in chunks',
      'Transfer-Encoding: chunked',
      `${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`,
    ],
  ])('an upgrade request with a body %s is refused', async (_, framing, body) => {
    const text = await raw(
      ['GET / HTTP/1.1', `Host: ${host}`, 'Connection: Upgrade', 'Upgrade: websocket', framing],
      body,
    );
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it('a body that the app does not read is not taken for the next request', async () => {
    await world.serve(
      sandbox,
      (request, response) => {
        reached.push(`${request.method} ${request.url}`);
        response.end('unread');
      },
      4000,
    );
    const client = await openRaw(world.port);
    const inside = world.hostOf(sandbox, 4000);
    client.send(
      `POST /first HTTP/1.1\r\nHost: ${inside}\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`,
    );
    await client.until(/unread/);
    client.send(`GET /second HTTP/1.1\r\nHost: ${inside}\r\n\r\n`);
    await client.until(/unread[\s\S]*unread/);
    client.socket.destroy();
    expect(reached).toEqual(['POST /first', 'GET /second']);
  });
});

describe('host confusion', () => {
  it('two Host headers are refused', async () => {
    const text = await raw(['GET / HTTP/1.1', `Host: ${host}`, 'Host: 127.0.0.1']);
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it('no Host header is refused', async () => {
    expect(statusOf(await raw(['GET / HTTP/1.1']))).toBe(400);
  });

  it('a target that names another host than the Host header is refused', async () => {
    const other = world.sandboxes.make();
    const text = await raw([`GET http://${world.hostOf(other)}/ HTTP/1.1`, `Host: ${host}`]);
    expect(statusOf(text)).toBe(400);
    expect(reached).toEqual([]);
  });

  it("a target in absolute form with the request's own host arrives as a path", async () => {
    const text = await raw([`GET http://${host}/a?b HTTP/1.1`, `Host: ${host}`]);
    expect(statusOf(text)).toBe(200);
    expect(reached).toEqual(['GET /a?b']);
  });

  it('X-Forwarded-Host, X-Original-Host and X-Host do not name the sandbox', async () => {
    const names = ['X-Forwarded-Host', 'X-Original-Host', 'X-Host', 'X-Rewrite-Url', 'Forwarded'];
    for (const name of names) {
      const text = await raw(['GET / HTTP/1.1', 'Host: 127.0.0.1', `${name}: ${host}`, 'Connection: close']);
      expect(text).toContain('the API');
    }
    expect(reached).toEqual([]);
  });

  it("a sandbox cannot be reached under another's name", async () => {
    const other = world.sandboxes.make();
    expect((await ask(world.port, world.hostOf(other))).status).toBe(502);
    const headers = { 'Torpor-Sandbox': sandbox.id };
    expect((await ask(world.port, world.hostOf(other), { headers })).status).toBe(400);
    expect(reached).toEqual([]);
  });

  it('CONNECT and TRACE are refused', async () => {
    const client = await openRaw(world.port);
    client.send(`CONNECT ${host}:22 HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await client.closed()).not.toMatch(/ 200 /);
    expect(statusOf(await raw(['TRACE / HTTP/1.1', `Host: ${host}`, 'Cookie: secret=1']))).toBe(400);
    expect(reached).toEqual([]);
  });
});

describe('response smuggling', () => {
  /** What a client gets from an app that responds with exactly these bytes. */
  async function answered(text: string, method = 'GET'): Promise<string> {
    await world.serveRaw(sandbox, (socket) => void socket.once('data', () => socket.end(text)), 4000);
    const lines = [`${method} / HTTP/1.1`, `Host: ${world.hostOf(sandbox, 4000)}`, 'Connection: close'];
    return raw(lines);
  }
  const lengthsIn = (text: string) =>
    [...text.matchAll(/^content-length:(.*)\r$/gim)].map((found) => found[1]?.trim());

  it.each([
    ['a list of equal lengths', 'Content-Length: 5, 5'],
    ['two equal lengths', 'Content-Length: 5\r\nContent-Length: 5'],
    ['a length with zeros in front', 'Content-Length: 005'],
    ['a list of three', 'Content-Length: 5,5,5'],
  ])('%s reaches the client as one length', async (_, header) => {
    const text = await answered(`HTTP/1.1 200 OK\r\n${header}\r\n\r\nhello`);
    expect(statusOf(text)).toBe(200);
    expect(lengthsIn(text)).toEqual(['5']);
    expect(text.endsWith('\r\n\r\nhello')).toBe(true);
  });

  it.each([
    ['GET', '200 OK', 'Content-Length: 5, 6'],
    ['GET', '200 OK', 'Content-Length: 5\r\nContent-Length: 6'],
    ['GET', '200 OK', 'Content-Length: 5,'],
    ['HEAD', '200 OK', 'Content-Length: 5, 6'],
    ['HEAD', '200 OK', 'Content-Length: 5x'],
    ['GET', '304 Not Modified', 'Content-Length: 5\r\nContent-Length: 6'],
    ['GET', '204 No Content', 'Content-Length: -1'],
  ])('%s: a response %s with %j is refused', async (method, status, header) => {
    const text = await answered(`HTTP/1.1 ${status}\r\n${header}\r\n\r\nhello`, method);
    expect(statusOf(text)).toBe(502);
    expect(text).not.toContain('hello');
  });

  it.each(['204 No Content', '304 Not Modified'])(
    'an answer %s, which has no body, says no length and passes no bytes on',
    async (status) => {
      for (const framing of ['Content-Length: 5', 'Transfer-Encoding: chunked']) {
        const text = await answered(`HTTP/1.1 ${status}\r\n${framing}\r\nX-Kept: 1\r\n\r\nhello`);
        expect(statusOf(text)).toBe(Number.parseInt(status, 10));
        expect(text).toMatch(/^x-kept: 1\r$/im);
        expect(text).not.toMatch(/^(content-length|transfer-encoding):/im);
        expect(text).not.toContain('hello');
      }
    },
  );

  it('a 1xx response has no length, and the response after it is the final one', async () => {
    const early = 'HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nContent-Length: 5\r\n\r\n';
    const text = await answered(`${early}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok`);
    expect(lengthsIn(text)).toEqual(['2']);
    expect(text.endsWith('\r\n\r\nok')).toBe(true);
  });

  it('a response to HEAD keeps its length', async () => {
    expect(lengthsIn(await answered('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n', 'HEAD'))).toEqual(['5']);
  });

  it('a length beside chunks does not reach the client', async () => {
    const body = '5\r\nhello\r\n0\r\n\r\n';
    const text = await answered(
      `HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n${body}`,
    );
    expect(lengthsIn(text)).toEqual([]);
    expect(text).toContain('hello');
  });
});

describe('unbounded input', () => {
  it('headers that are too large are refused', async () => {
    const text = await raw(['GET / HTTP/1.1', `Host: ${host}`, `X-A: ${'b'.repeat(20_000)}`]);
    expect(statusOf(text)).toBe(431);
    expect(reached).toEqual([]);
  });

  it('a response whose head never ends is aborted', async () => {
    await world.serveRaw(
      sandbox,
      (socket) => {
        socket.once('data', () => {
          socket.write('HTTP/1.1 200 OK\r\n');
          const more = () => {
            while (!socket.destroyed && socket.write('X-A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n'));
          };
          socket.on('drain', more);
          more();
        });
      },
      4000,
    );
    expect((await ask(world.port, world.hostOf(sandbox, 4000))).status).toBe(502);
  });

  it('a client that pipelines without end is disconnected', async () => {
    const asleep = world.sandboxes.make({ state: 'paused' });
    const waking = Promise.withResolvers<void>();
    asleep.onWake = () => waking.promise;
    const client = await openRaw(world.port);
    client.socket.on('error', () => {});
    client.send(`GET / HTTP/1.1\r\nHost: ${world.hostOf(asleep)}\r\n\r\n`.repeat(2_000));
    await client.closed();
    while (world.gateway.queuedRequests > 0) await new Promise(setImmediate);
    waking.resolve();
  });

  it('endless early hints are aborted', async () => {
    await world.serveRaw(
      sandbox,
      (socket) => {
        const more = () => {
          while (!socket.destroyed && socket.write('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'));
        };
        socket.on('drain', more);
        socket.once('data', more);
      },
      4000,
    );
    expect((await ask(world.port, world.hostOf(sandbox, 4000))).status).toBe(502);
  });

  it('many early hints are passed on, and none is kept in memory', async () => {
    await world.serveRaw(
      sandbox,
      (socket) => {
        socket.once('data', () => {
          for (let i = 0; i < 100; i++) socket.write('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n');
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
        });
      },
      4000,
    );
    expect((await ask(world.port, world.hostOf(sandbox, 4000))).text).toBe('ok');
  });
});
