import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type SandboxId, SOCKET_PROTOCOL, type SocketNotice, type SocketRequest } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: string;
let id: SandboxId;
beforeAll(async () => {
  server = await testServer({ settings: { heartbeatMs: 100 } });
  url = await server.listen();
  id = await server.create();
});
afterAll(() => server.dispose());
const clients: WebSocket[] = [];
afterEach(() => {
  for (const client of clients.splice(0)) client.terminate();
});

interface Talk {
  readonly socket: WebSocket;
  readonly notices: SocketNotice[];
  output(): string;
  tell(request: SocketRequest): void;
  /** Resolves when the output contains this text. */
  until(text: string): Promise<void>;
  /** Resolves with all messages when the server has closed the socket. */
  closed(): Promise<{ readonly notices: SocketNotice[]; readonly output: string }>;
}

function talk(path: string, options: { readonly key?: string; readonly asProtocol?: boolean } = {}): Talk {
  const { key = server.keys.default, asProtocol = false } = options;
  const protocols = asProtocol ? [SOCKET_PROTOCOL, `torpor.key.${key}`] : [SOCKET_PROTOCOL];
  const headers = asProtocol ? {} : { authorization: `Bearer ${key}` };
  const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`, protocols, { headers });
  clients.push(socket);
  const notices: SocketNotice[] = [];
  const chunks: Buffer[] = [];
  socket.on('message', (data: Buffer, isBinary) => {
    if (isBinary) chunks.push(data);
    else notices.push(JSON.parse(data.toString()));
  });
  const output = () => Buffer.concat(chunks).toString();
  return {
    socket,
    notices,
    output,
    tell: (request) => socket.send(JSON.stringify(request)),
    until: async (text) => {
      const over = once(socket, 'close').then(() => Promise.reject(new Error(`closed after: ${output()}`)));
      over.catch(() => {});
      while (!output().includes(text)) await Promise.race([once(socket, 'message'), over]);
    },
    closed: async () => {
      if (socket.readyState !== WebSocket.CLOSED) await once(socket, 'close');
      return { notices, output: output() };
    },
  };
}

async function opened(conversation: Talk): Promise<Talk> {
  await once(conversation.socket, 'open');
  return conversation;
}

async function running(command: string, more: object = {}): Promise<Talk> {
  const conversation = await opened(talk(`/v1/sandboxes/${id}/exec`));
  conversation.tell({ exec: { command, ...more } });
  return conversation;
}

/** A sleep with a duration that no other process of this machine uses. */
const nap = (seconds: number) => `sleep ${seconds}.${process.pid}`;

async function runs(command: string): Promise<boolean> {
  const { output } = await (await running(`ps -eo args | grep -c '^${command}' || true`)).closed();
  return Number(output.slice(1)) > 0;
}

describe('a terminal', () => {
  it('has a size, and its shell has an exit code', async () => {
    const terminal = await opened(talk(`/v1/sandboxes/${id}/terminal?cols=97&rows=31`));
    terminal.socket.send(Buffer.from('stty size; echo "$TERM"\n'));
    await terminal.until('31 97');
    terminal.tell({ resize: { cols: 120, rows: 40 } });
    terminal.socket.send(Buffer.from('stty size; exit 7\n'));
    const { notices, output } = await terminal.closed();
    expect(output).toContain('40 120');
    expect(output).toContain('xterm-256color');
    expect(notices[0]).toMatchObject({ started: { autoResumed: false } });
    expect(notices.at(-1)).toMatchObject({ exit: { code: 7, signal: null } });
  });

  it('runs the command it is given', async () => {
    const { notices, output } = await talk(
      `/v1/sandboxes/${id}/terminal?command=${encodeURIComponent('tty; exit 3')}`,
    ).closed();
    expect(output).toMatch(/\/dev\//);
    expect(notices.at(-1)).toMatchObject({ exit: { code: 3 } });
  });

  it('wakes a paused sandbox and says so (R109)', async () => {
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    const { notices } = await talk(`/v1/sandboxes/${id}/terminal?command=true`).closed();
    expect(notices[0]).toMatchObject({ started: { autoResumed: true } });
  });

  it('keeps the sandbox awake while it is open, and ends its process when it is closed', async () => {
    const { leases } = server.ctx.engine;
    const terminal = await opened(
      talk(`/v1/sandboxes/${id}/terminal?command=${encodeURIComponent(`echo here; ${nap(4711)}`)}`),
    );
    await terminal.until('here');
    expect(leases.count(id)).toBe(1);
    expect(await runs(nap(4711))).toBe(true);
    terminal.socket.close();
    await expect.poll(() => leases.count(id)).toBe(0);
    expect(await runs(nap(4711))).toBe(false);
  });

  it('is pinged, and closed when the client does not answer', async () => {
    const terminal = await opened(
      talk(`/v1/sandboxes/${id}/terminal?command=${encodeURIComponent(nap(4712))}`),
    );
    await once(terminal.socket, 'ping');
    terminal.socket.pause();
    await expect.poll(() => server.ctx.engine.leases.count(id)).toBe(0);
  });
});

describe('a command over a socket', () => {
  it('has its output byte for byte, per channel, and its exit code', async () => {
    const conversation = await running('printf "\\001\\377"; printf "\\000e" >&2; exit 5');
    const frames: Buffer[] = [];
    conversation.socket.on('message', (data: Buffer, isBinary) => isBinary && frames.push(data));
    const { notices } = await conversation.closed();
    const of = (channel: number) =>
      Buffer.concat(frames.filter((frame) => frame[0] === channel).map((frame) => frame.subarray(1)));
    expect(of(1)).toEqual(Buffer.from([1, 255]));
    expect(of(2)).toEqual(Buffer.from([0, 101]));
    expect(notices.at(-1)).toMatchObject({ exit: { code: 5, signal: null } });
  });

  it('reads streamed input to its end', async () => {
    const conversation = await running('sha256sum; wc -c');
    const sent = Buffer.alloc(3 * 1024 * 1024, 'torpor ');
    for (let at = 0; at < sent.length; at += 65_536) conversation.socket.send(sent.subarray(at, at + 65_536));
    conversation.tell({ closeStdin: true });
    const { output } = await conversation.closed();
    expect(output).toContain(createHash('sha256').update(sent).digest('hex'));
  });

  it('may leave its input unread', async () => {
    const conversation = await running('sleep 0.5; cat | wc -c');
    conversation.socket.send(Buffer.alloc(3 * 1024 * 1024));
    conversation.tell({ closeStdin: true });
    expect((await conversation.closed()).output).toContain('3145728');
  });

  it('waits until the client confirms what it has read', async () => {
    const conversation = await opened(talk(`/v1/sandboxes/${id}/exec?window=2048`));
    conversation.tell({ exec: { command: 'head -c 200000 /dev/zero; echo done >&2' } });
    let unconfirmed = 0;
    let most = 0;
    conversation.socket.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) return;
      unconfirmed += data.length - 1;
      most = Math.max(most, unconfirmed);
      setImmediate(() => {
        conversation.tell({ received: unconfirmed });
        unconfirmed = 0;
      });
    });
    const { notices, output } = await conversation.closed();
    expect(notices.at(-1)).toMatchObject({ exit: { code: 0 } });
    expect(output.length).toBeGreaterThan(200_000);
    // One message may exceed the window.
    expect(most).toBeLessThan(2048 + 65_536);
  });

  it('has the requested environment, directory and timeout', async () => {
    const { output } = await (
      await running('echo "$WHO in $(basename $PWD)"', { env: { WHO: 'ada' }, cwd: '/' })
    ).closed();
    expect(output).toContain('ada in');
    const { notices } = await (await running(nap(60), { timeoutSeconds: 1 })).closed();
    expect(notices.at(-1)).toMatchObject({ error: { code: 'timeout' } });
    expect(await runs(nap(60))).toBe(false);
  });

  it('is killed when its client disconnects', async () => {
    const conversation = await running(`echo here; ${nap(4713)}`);
    await conversation.until('here');
    conversation.socket.terminate();
    await expect.poll(() => server.ctx.engine.leases.count(id)).toBe(0);
    expect(await runs(nap(4713))).toBe(false);
  });

  it.each([
    ['a frame that is not JSON', 'what?'],
    ['an unknown request', '{"dance": true}'],
    ['another request first', '{"closeStdin": true}'],
    ['an empty command', '{"exec": {"command": ""}}'],
  ])('refuses %s', async (_, text) => {
    const conversation = await opened(talk(`/v1/sandboxes/${id}/exec`));
    conversation.socket.send(text);
    const { notices } = await conversation.closed();
    expect(notices.at(-1)).toMatchObject({ error: { code: 'invalid_request' } });
  });
});

describe('the upgrade', () => {
  const refusal = async (conversation: Talk): Promise<{ status: number | undefined; body: string }> => {
    conversation.socket.on('error', () => {});
    const [, response] = await once(conversation.socket, 'unexpected-response');
    let body = '';
    for await (const chunk of response) body += chunk;
    return { status: response.statusCode, body };
  };

  it('accepts the key in a header or as a subprotocol, which is all a browser can send', async () => {
    for (const asProtocol of [false, true]) {
      const conversation = await opened(talk(`/v1/sandboxes/${id}/exec`, { asProtocol }));
      expect(conversation.socket.protocol).toBe(SOCKET_PROTOCOL);
    }
  });

  it('refuses a wrong key with the usual answer', async () => {
    for (const asProtocol of [false, true]) {
      const { status, body } = await refusal(
        talk(`/v1/sandboxes/${id}/exec`, { key: '0'.repeat(64), asProtocol }),
      );
      expect(status).toBe(401);
      expect(JSON.parse(body)).toMatchObject({
        error: { code: 'unauthenticated', requestId: expect.stringMatching(/^req_/) },
      });
    }
  });

  it('returns a request id and logs it (R102)', async () => {
    const conversation = talk(`/v1/sandboxes/${id}/terminal?command=true`);
    const [response] = await once(conversation.socket, 'upgrade');
    const requestId = response.headers['x-request-id'];
    expect(requestId).toMatch(/^req_[a-z0-9]{20}$/);
    await conversation.closed();
    await expect
      .poll(() => server.log.filter((line) => line.includes(requestId)).join())
      .toContain('"status":101');
  });

  it('is 404 for another organisation (R104)', async () => {
    const conversation = await opened(talk(`/v1/sandboxes/${id}/exec`, { key: server.keys.other }));
    conversation.tell({ exec: { command: 'true' } });
    const { notices } = await conversation.closed();
    expect(notices).toMatchObject([{ error: { code: 'not_found' } }]);
  });

  it('answers an upgrade to another route like a plain request', async () => {
    const { status, body } = await refusal(talk('/v1/nothing'));
    expect([status, JSON.parse(body).error.code]).toEqual([404, 'not_found']);
  });

  it('answers a plain GET with a hint to upgrade', async () => {
    const headers = { authorization: `Bearer ${server.keys.default}` };
    const response = await fetch(`${url}/v1/sandboxes/${id}/terminal`, { headers });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain('WebSocket');
  });

  it('refuses an impossible terminal size', async () => {
    const { status } = await refusal(talk(`/v1/sandboxes/${id}/terminal?cols=0`));
    expect(status).toBe(400);
  });

  it('closes terminals with an error as soon as the server stops', async () => {
    const ending = await testServer();
    const sandboxId = await ending.create();
    const address = `${(await ending.listen()).replace('http', 'ws')}/v1/sandboxes/${sandboxId}/terminal`;
    const headers = { authorization: `Bearer ${ending.keys.default}` };
    const socket = new WebSocket(address, [SOCKET_PROTOCOL], { headers });
    clients.push(socket);
    const notices: SocketNotice[] = [];
    socket.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) notices.push(JSON.parse(data.toString()));
    });
    await once(socket, 'message');
    const closed = once(socket, 'close');
    await ending.dispose();
    await closed;
    expect(notices.at(-1)).toMatchObject({ error: { code: 'unreachable' } });
    expect(ending.ctx.engine.leases.count(sandboxId)).toBe(0);
  });
});
