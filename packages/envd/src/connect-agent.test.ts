import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Code, ConnectError } from '@connectrpc/connect';
import { TorporError } from '@torpor/protocol';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type AgentClient, agentError, connectAgent } from './index.ts';

const open: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

async function serve(listener: RequestListener, path?: string): Promise<Server> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => {
    if (path === undefined) server.listen(0, '127.0.0.1', resolve);
    else server.listen(path, resolve);
  });
  open.push(
    () => server.closeAllConnections(),
    () => new Promise((resolve) => server.close(resolve)),
  );
  return server;
}

async function clientOf(listener: RequestListener, accessToken?: string): Promise<AgentClient> {
  const address = (await serve(listener)).address();
  const port = typeof address === 'object' && address ? address.port : 0;
  const client = connectAgent({ baseUrl: `http://127.0.0.1:${port}`, accessToken });
  open.push(() => client.close());
  return client;
}

async function codeOf(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(TorporError);
  return (error as TorporError).code;
}

describe('the client of an agent', () => {
  it('sends the access token with plain calls and RPCs alike', async () => {
    const tokens: unknown[] = [];
    const client = await clientOf((request, response) => {
      tokens.push(request.headers['x-access-token']);
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    }, 'secret');
    await client.envs();
    await client.metrics();
    await client.process.list({}).catch(() => {});
    expect(tokens).toEqual(['secret', 'secret', 'secret']);
  });

  it('speaks over a unix socket', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'torpor-envd-'));
    open.push(() => rm(directory, { recursive: true }));
    const socketPath = join(directory, 'agent.sock');
    await serve((_, response) => void response.writeHead(200).end('{"A":"1","ignored":2}'), socketPath);
    const client = connectAgent({ socketPath });
    open.push(() => client.close());
    expect(await client.envs()).toEqual({ A: '1' });
  });

  it('uses a connection for its first call that was opened before', async () => {
    const server = await serve((_, response) => void response.writeHead(204).end());
    const opened: (number | undefined)[] = [];
    server.on('connection', ({ remotePort }) => opened.push(remotePort));
    const used: (number | undefined)[] = [];
    server.on('request', ({ socket }) => used.push(socket.remotePort));
    const { port } = server.address() as AddressInfo;
    const client = connectAgent({ baseUrl: `http://127.0.0.1:${port}` });
    client.preconnect();
    await vi.waitFor(() => expect(opened).toHaveLength(1));

    await client.health();

    expect(used).toEqual(opened);
    client.close();
  });

  it('waits for an agent and sets it up on one connection', async () => {
    let opened = 0;
    const server = await serve((request, response) => {
      if (request.url === '/health') return void response.writeHead(204).end();
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
    server.on('connection', () => opened++);
    const { port } = server.address() as AddressInfo;
    const client = connectAgent({ baseUrl: `http://127.0.0.1:${port}` });
    await client.health();
    await client.init({});
    client.close();
    expect(opened).toBe(1);
  });

  it('connects again when the connection that was opened before has failed, and closes an unused connection', async () => {
    const server = await serve((_, response) => void response.writeHead(204).end());
    const { port } = server.address() as AddressInfo;
    const client = connectAgent({ baseUrl: `http://127.0.0.1:${port}` });
    server.once('connection', (socket) => socket.destroy());
    client.preconnect();
    await once(server, 'connection');
    await client.health().catch(() => client.health());
    client.preconnect();
    const [unused] = await once(server, 'connection');
    client.close();
    await once(unused, 'close');
  });

  it('streams files in both directions', async () => {
    const client = await clientOf(async (request, response) => {
      if (request.method === 'GET') return void response.end(`content of ${request.url}`);
      const body = await text(request);
      response.end(JSON.stringify([{ path: `/x/${body}`, name: body, type: 'file' }]));
    });
    expect(await text(await client.files.read('/a b', { user: 'root' }))).toBe(
      'content of /files?path=%2Fa+b&username=root',
    );
    expect(await client.files.write('/x', Readable.from(['to', 'gether']))).toEqual({
      path: '/x/together',
      name: 'together',
    });
  });

  it.each([
    [400, 'invalid_request'],
    [401, 'unauthenticated'],
    [403, 'forbidden'],
    [404, 'not_found'],
    [507, 'storage_full'],
    [500, 'internal'],
  ])('turns status %i into %s, with the message of the agent', async (status, code) => {
    const client = await clientOf((_, response) => {
      response.writeHead(status).end(JSON.stringify({ code: status, message: 'the agent says why' }));
    });
    const call = client.files.read('/x');
    expect(await codeOf(call)).toBe(code);
    await expect(call).rejects.toThrow('the agent says why');
  });

  it('reports an agent that does not answer as unreachable', async () => {
    const client = connectAgent({ baseUrl: 'http://127.0.0.1:1' });
    open.push(() => client.close());
    expect(await codeOf(client.health())).toBe('unreachable');
    expect(agentError(await client.process.list({}).catch((error: unknown) => error)).code).toBe(
      'unreachable',
    );
  });

  it('stops a call when its signal fires', async () => {
    const stop = new AbortController();
    const client = await clientOf(() => stop.abort());
    expect(await codeOf(client.health({ signal: stop.signal }))).toBe('timeout');
  });

  it('leaves no timer behind when the reader leaves a stream before its end', async () => {
    const client = await clientOf((_, response) => {
      response.writeHead(200, { 'content-type': 'application/connect+proto' });
      // One empty message; the stream stays open after it.
      response.write(Buffer.alloc(5));
    });
    const timeoutMs = 86_400_000;
    const setting = vi.spyOn(globalThis, 'setTimeout');
    const clearing = vi.spyOn(globalThis, 'clearTimeout');
    open.push(() => vi.restoreAllMocks());
    for await (const _ of client.process.start({}, { timeoutMs })) break;
    const index = setting.mock.calls.findIndex(([, ms]) => ms === timeoutMs);
    const timer = setting.mock.results[index]?.value;
    expect(timer).toBeDefined();
    await vi.waitFor(() => expect(clearing.mock.calls.map(([cleared]) => cleared)).toContain(timer));
  });

  it('refuses an answer in an unexpected form', async () => {
    const client = await clientOf((_, response) => void response.end('{"ports":"all of them"}'));
    expect(await codeOf(client.ports())).toBe('internal');
    expect(await codeOf(client.files.write('/x', 'y'))).toBe('internal');
  });

  it('refuses an answer that is too long', async () => {
    const client = await clientOf((_, response) => {
      const flood = () => {
        while (response.write(Buffer.alloc(64 * 1024, 0x20)));
        response.once('drain', flood);
      };
      flood();
    });
    expect(await codeOf(client.envs())).toBe('internal');
  });
});

describe('errors of an agent', () => {
  it('keep the message and the cause', () => {
    const thrown = new ConnectError('no such pid', Code.NotFound);
    const error = agentError(thrown);
    expect([error.code, error.message, error.cause]).toEqual(['not_found', 'no such pid', thrown]);
    expect(agentError(error)).toBe(error);
  });

  it('are "unreachable" when the connection broke', () => {
    expect(agentError(new ConnectError('aborted', Code.Aborted)).code).toBe('unreachable');
    expect(agentError(new Error('socket hang up')).code).toBe('unreachable');
  });
});
