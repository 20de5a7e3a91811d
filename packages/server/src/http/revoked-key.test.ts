import { once } from 'node:events';
import { request } from 'node:http';
import type { CreatedKey, SandboxId, SocketNotice } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { framesOf, type ReadFrame } from '../../testing/event-frames.ts';
import { type TestServer, testServer } from '../../testing/test-server.ts';

let server: TestServer;
let url: string;
let id: SandboxId;
let key: CreatedKey;

beforeAll(async () => {
  server = await testServer({
    settings: { keyCheckMs: 20, stallMs: 500 },
    // The first request to the agent waits until the agent has started.
    engineSettings: { observeMs: 30_000 },
  });
  url = await server.listen();
  id = await server.create();
});
afterAll(() => server.dispose());
beforeEach(async () => {
  key = (await server.ask('POST', '/v1/keys', { body: { name: 'to be revoked' } })).json();
});
const sockets: WebSocket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.terminate();
});

const revoke = () => server.ask('DELETE', `/v1/keys/${key.id}`);
const leases = () => server.ctx.engine.leases.count(id);
const openStreams = async () => (await server.ctx.metrics.streams.get()).values[0]?.value;

function stream(method: string, path: string, body?: object, bearer = key.key): Promise<Response> {
  return fetch(`${url}${path}`, {
    method,
    headers: {
      accept: 'text/event-stream',
      authorization: `Bearer ${bearer}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

/** Reads until the stream is closed. `onFrame` is called for every frame, including comments. */
async function readAll(response: Response, onFrame: (frame: ReadFrame) => void = () => {}) {
  const frames: ReadFrame[] = [];
  for await (const frame of framesOf(response)) {
    if (frame.event !== undefined) frames.push(frame);
    onFrame(frame);
  }
  return frames;
}

const refusal = {
  event: 'error',
  data: { code: 'unauthenticated', retryable: false, requestId: expect.stringMatching(/^req_/) },
};

describe('a key that is revoked', () => {
  it('ends its event streams with an error, and no other streams', async () => {
    const other = await stream('GET', '/v1/events', undefined, server.keys.default);
    const mine = await Promise.all([
      stream('GET', '/v1/events'),
      stream('GET', `/v1/sandboxes/${id}/events`),
    ]);
    await revoke();
    for (const response of mine) {
      expect(response.status).toBe(200);
      expect((await readAll(response)).at(-1)).toMatchObject(refusal);
    }
    const later = await server.create();
    const isLater = ({ data }: ReadFrame) =>
      (data as { sandboxId?: string } | undefined)?.sandboxId === later;
    for await (const frame of framesOf(other)) if (isLater(frame)) break;
  });

  it('ends the command whose output it streams', async () => {
    const response = await stream('POST', `/v1/sandboxes/${id}/exec`, { command: 'echo up; sleep 1000' });
    const frames = await readAll(response, ({ event }) => void (event === 'stdout' && revoke()));
    expect(frames.map(({ event }) => event)).toEqual(['start', 'stdout', 'error']);
    expect(frames.at(-1)).toMatchObject(refusal);
    await expect.poll(leases).toBe(0);
    // The agent notices the end a little later.
    const processes = async () => (await server.ask('GET', `/v1/sandboxes/${id}/processes`)).json().items;
    await expect.poll(processes).toEqual([]);
  });

  it('closes a stream that is not read', async () => {
    const before = await openStreams();
    const asked = request(`${url}/v1/sandboxes/${id}/exec`, {
      method: 'POST',
      headers: {
        accept: 'text/event-stream',
        authorization: `Bearer ${key.key}`,
        'content-type': 'application/json',
      },
    });
    asked.on('error', () => {});
    asked.end(JSON.stringify({ command: 'cat /dev/zero' }));
    const [response] = await once(asked, 'response');
    response.on('error', () => {});
    response.pause();
    expect(leases()).toBe(1);
    await revoke();
    await expect.poll(leases, { timeout: 10_000 }).toBe(0);
    await expect.poll(openStreams).toBe(before);
    asked.destroy();
  });

  async function opened(path: string, first?: object) {
    const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`, {
      headers: { authorization: `Bearer ${key.key}` },
    });
    sockets.push(socket);
    const notices: SocketNotice[] = [];
    socket.on('message', (data: Buffer, isBinary) => {
      if (!isBinary) notices.push(JSON.parse(data.toString()));
    });
    const closed = once(socket, 'close');
    await once(socket, 'open');
    if (first !== undefined) socket.send(JSON.stringify(first));
    return { socket, notices, closed };
  }

  it('closes its terminals with an error, and ends their processes', async () => {
    const { notices, socket, closed } = await opened(
      `/v1/sandboxes/${id}/terminal?command=${encodeURIComponent('echo up; sleep 1000')}`,
    );
    await once(socket, 'message');
    await revoke();
    expect(await closed).toEqual([1000, expect.anything()]);
    expect(notices.map((notice) => Object.keys(notice)[0])).toEqual(['started', 'error']);
    expect(notices.at(-1)).toMatchObject({ error: refusal.data });
    await expect.poll(leases).toBe(0);
  });

  it('closes a socket whose client confirms nothing, and one that has sent no request yet', async () => {
    const silent = await opened(`/v1/sandboxes/${id}/exec`);
    const stuck = await opened(`/v1/sandboxes/${id}/exec?window=1024`, {
      exec: { command: 'cat /dev/zero' },
    });
    await once(stuck.socket, 'message');
    await revoke();
    for (const { closed, notices } of [silent, stuck]) {
      await closed;
      expect(notices.at(-1)).toMatchObject({ error: refusal.data });
    }
    await expect.poll(leases).toBe(0);
  });

  it('appears in the log as the reason for the end of the connection', async () => {
    const { closed } = await opened(`/v1/sandboxes/${id}/terminal`);
    await revoke();
    await closed;
    const ended = (line: string) => line.includes(key.id) && line.includes('"status":101');
    await expect.poll(() => server.log.find(ended)).toContain('"errorCode":"unauthenticated"');
  });
});
