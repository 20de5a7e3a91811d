import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket as ClientSocket, type WebSocket as ServerSocket, WebSocketServer } from 'ws';
import { SANDBOX_ID } from '../testing/views.ts';
import { Torpor } from './client.ts';
import type { ProcessEvent } from './process-socket.ts';

let http: Server;
let sockets: WebSocketServer;
let torpor: Torpor;
let answer: object;
let behave: (socket: ServerSocket, url: URL) => void;
beforeEach(async () => {
  answer = { code: 'not_found', message: 'No such sandbox.', retryable: false, hint: '' };
  http = createServer((_, response) => {
    response.writeHead(404, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: answer }));
  });
  sockets = new WebSocketServer({ noServer: true, handleProtocols: (offered) => [...offered][0] ?? false });
  http.on('upgrade', (request, socket, head) => {
    const url = new URL(request.url ?? '', 'http://server');
    if (!request.headers['sec-websocket-protocol']?.endsWith('torpor.key.secret')) {
      socket.end('HTTP/1.1 401 Unauthorized\r\n\r\n');
      return;
    }
    sockets.handleUpgrade(request, socket, head, (opened) => behave(opened, url));
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  torpor = new Torpor({
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    apiKey: 'secret',
    env: {},
  });
});
afterEach(() => {
  for (const client of sockets.clients) client.terminate();
  http.closeAllConnections();
  http.close();
});

async function readAll(events: AsyncIterable<ProcessEvent>): Promise<ProcessEvent[]> {
  const all: ProcessEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

const exit = { code: 3, signal: null, durationMs: 8 };
const say = (socket: ServerSocket, notice: unknown) => socket.send(JSON.stringify(notice));

describe('a terminal', () => {
  it('is requested with its size and command, with the key as a subprotocol', async () => {
    let asked = new URL('http://nowhere');
    behave = (socket, url) => {
      asked = url;
      say(socket, { started: { pid: 5, autoResumed: true } });
      socket.send(Buffer.from([0, 255]));
      say(socket, { exit });
    };
    const terminal = await torpor.sandboxes.terminal(SANDBOX_ID, { cols: 90, rows: 20, command: 'top' });
    expect(await readAll(terminal)).toEqual([
      { type: 'started', pid: 5, autoResumed: true },
      { type: 'output', channel: 'terminal', bytes: new Uint8Array([0, 255]) },
      { type: 'exit', ...exit },
    ]);
    expect(asked.pathname).toBe(`/v1/sandboxes/${SANDBOX_ID}/terminal`);
    expect(Object.fromEntries(asked.searchParams)).toMatchObject({ cols: '90', rows: '20', command: 'top' });
  });

  it('sends input and its size', async () => {
    const heard: string[] = [];
    behave = (socket) => {
      socket.on('message', (data: Buffer) => {
        heard.push(data.toString());
        if (heard.length === 2) say(socket, { exit });
      });
    };
    const terminal = await torpor.sandboxes.terminal(SANDBOX_ID);
    await terminal.write(Buffer.from('ls\r'));
    terminal.resize(100, 50);
    await readAll(terminal);
    expect(heard).toEqual(['ls\r', '{"resize":{"cols":100,"rows":50}}']);
  });
});

describe('a command over a socket', () => {
  it('sends the command first, and has two output channels', async () => {
    const heard: unknown[] = [];
    behave = (socket) => {
      socket.on('message', (data: Buffer, isBinary) => {
        heard.push(isBinary ? data.toString() : JSON.parse(data.toString()));
        if (heard.length < 3) return;
        socket.send(Buffer.from([1, 111]));
        socket.send(Buffer.from([2, 101]));
        say(socket, { exit });
      });
    };
    const socket = await torpor.sandboxes.execSocket(SANDBOX_ID, { command: 'cat' });
    await socket.write(Buffer.from('in'));
    socket.closeStdin();
    const events = await readAll(socket);
    expect(heard).toEqual([{ exec: { command: 'cat' } }, 'in', { closeStdin: true }]);
    expect(events).toEqual([
      { type: 'output', channel: 'stdout', bytes: new Uint8Array([111]) },
      { type: 'output', channel: 'stderr', bytes: new Uint8Array([101]) },
      { type: 'exit', ...exit },
    ]);
  });

  it('confirms output that was read, so that a fast command waits', async () => {
    let confirmed = 0;
    behave = (socket, url) => {
      expect(Number(url.searchParams.get('window'))).toBeGreaterThan(0);
      socket.on('message', (data: Buffer) => {
        const request = JSON.parse(data.toString());
        if ('exec' in request) for (let i = 0; i < 10; i++) socket.send(Buffer.alloc(40_001, 1));
        confirmed += request.received ?? 0;
        if (confirmed >= 300_000) say(socket, { exit });
      });
    };
    const events = await readAll(await torpor.sandboxes.execSocket(SANDBOX_ID, { command: 'yes' }));
    expect(events.at(-1)?.type).toBe('exit');
  });

  it("throws the server's error by its class", async () => {
    const error = { code: 'capacity', message: 'Full.', retryable: true, hint: 'Wait.', requestId: 'req_1' };
    behave = (socket) => say(socket, { error });
    const reading = readAll(await torpor.sandboxes.execSocket(SANDBOX_ID, { command: 'true' }));
    await expect(reading).rejects.toMatchObject({
      name: 'CapacityError',
      status: 503,
      requestId: 'req_1',
      hint: 'Wait.',
    });
  });

  it('fails when the connection breaks', async () => {
    behave = (socket) => {
      say(socket, { started: { pid: 1, autoResumed: false } });
      setImmediate(() => socket.terminate());
    };
    const reading = readAll(await torpor.sandboxes.execSocket(SANDBOX_ID, { command: 'true' }));
    await expect(reading).rejects.toMatchObject({ code: 'unreachable' });
  });

  it("is closed by the signal, and rejects with the signal's reason", async () => {
    const giveUp = new AbortController();
    const gone = new Promise<void>((resolve) => {
      behave = (socket) => {
        socket.on('close', () => resolve());
        say(socket, { started: { pid: 1, autoResumed: false } });
      };
    });
    const socket = await torpor.sandboxes.execSocket(
      SANDBOX_ID,
      { command: 'yes' },
      { signal: giveUp.signal },
    );
    const reading = (async () => {
      for await (const _ of socket) giveUp.abort(new Error('enough'));
    })();
    await expect(reading).rejects.toThrow('enough');
    await gone;
  });

  it('closes the connection when the loop is left', async () => {
    const gone = new Promise<void>((resolve) => {
      behave = (socket) => {
        socket.on('close', () => resolve());
        say(socket, { started: { pid: 1, autoResumed: false } });
      };
    });
    for await (const _ of await torpor.sandboxes.execSocket(SANDBOX_ID, { command: 'true' })) break;
    await gone;
  });

  it('reports why the server refused, which the WebSocket API hides', async () => {
    const stranger = new Torpor({ url: torpor.url, apiKey: 'wrong', env: {} });
    await expect(stranger.sandboxes.terminal(SANDBOX_ID)).rejects.toMatchObject({ code: 'not_found' });
    answer = {
      code: 'invalid_request',
      message: 'Only sockets.',
      retryable: false,
      hint: '',
      details: { upgrade: 'websocket' },
    };
    await expect(stranger.sandboxes.terminal(SANDBOX_ID)).rejects.toMatchObject({ code: 'unreachable' });
  });
});

describe('without a global WebSocket', () => {
  it('fails with a hint, and uses a given class', async () => {
    const { WebSocket: own } = globalThis;
    Reflect.deleteProperty(globalThis, 'WebSocket');
    try {
      const options = { url: torpor.url, apiKey: 'secret', env: {} };
      await expect(new Torpor(options).sandboxes.terminal(SANDBOX_ID)).rejects.toMatchObject({
        code: 'capability_unsupported',
        hint: expect.stringContaining('webSocket'),
      });
      behave = (socket) => say(socket, { exit });
      const given = new Torpor({ ...options, webSocket: ClientSocket });
      expect(await readAll(await given.sandboxes.terminal(SANDBOX_ID))).toEqual([{ type: 'exit', ...exit }]);
    } finally {
      globalThis.WebSocket = own;
    }
  });
});
