import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ListeningSocket } from './listening-ports.ts';
import { PortForwarders } from './port-forwarders.ts';

let sockets: ListeningSocket[];
let forwarders: PortForwarders;
let servers: Server[];

beforeEach(() => {
  sockets = [];
  servers = [];
  forwarders = new PortForwarders({ listening: async () => sockets, agentPort: () => 49_983 });
});

afterEach(() => {
  forwarders.close();
  for (const server of servers) server.close();
});

const entry = (port: number, address: string): ListeningSocket => ({ port, address, inode: '1' });

async function listen(host: string, answer: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, answer).listen(0, host);
  servers.push(server);
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  sockets.push(entry(port, host));
  return port;
}

async function ask(port: number, question: string): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.end(question);
  return text(socket);
}

const echo = (socket: Socket) => void socket.pipe(socket);

describe('a port that listens only on the loopback', () => {
  it('is reached through a relay with a port of its own, in both directions, including the end', async () => {
    const port = await listen('127.0.0.1', echo);
    const reached = (await forwarders.dialPort(port)) ?? 0;
    expect(reached).not.toBe(port);
    const long = 'x'.repeat(300_000);
    expect(await ask(reached, long)).toBe(long);
  });

  it('is reached from another local port each time, also when the next one is in use', async () => {
    const from: (number | undefined)[] = [];
    const port = await listen('127.0.0.1', (socket) => {
      from.push(socket.remotePort);
      echo(socket);
    });
    const reached = (await forwarders.dialPort(port)) ?? 0;
    expect(await ask(reached, 'one')).toBe('one');
    const taken = createServer().listen((from[0] ?? 0) + 1, '127.0.0.1');
    servers.push(taken);
    // Another process may use the port already, which serves the same purpose.
    await once(taken, 'listening').catch(() => {});
    expect(await ask(reached, 'two')).toBe('two');
    expect(from[1]).toBeGreaterThan((from[0] ?? 0) + 1);
  });

  it('is reached on the IPv6 loopback too', async ({ skip }) => {
    const port = await listen('::1', echo).catch(() => undefined);
    if (port === undefined) return skip('there is no IPv6 here');
    expect(await ask((await forwarders.dialPort(port)) ?? 0, 'six')).toBe('six');
  });

  it('has one relay for any number of concurrent requests', async () => {
    const port = await listen('127.0.0.1', echo);
    const answers = await Promise.all([1, 2, 3].map(() => forwarders.dialPort(port)));
    expect(new Set([...answers, await forwarders.dialPort(port)]).size).toBe(1);
  });

  it('loses its relay when the listener is gone, and gets a new one when it is back', async () => {
    const port = await listen('127.0.0.1', echo);
    const reached = (await forwarders.dialPort(port)) ?? 0;
    const [own] = sockets;
    sockets = [];
    expect(await forwarders.dialPort(port)).toBeUndefined();
    await expect(ask(reached, 'x')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    sockets = own === undefined ? [] : [own];
    expect(await ask((await forwarders.dialPort(port)) ?? 0, 'again')).toBe('again');
  });

  it('loses its relay when a connection finds no listener', async () => {
    const port = await listen('127.0.0.1', echo);
    const reached = (await forwarders.dialPort(port)) ?? 0;
    servers.pop()?.close();
    await expect(ask(reached, 'x')).rejects.toMatchObject({
      code: expect.stringMatching(/ECONNRESET|EPIPE/),
    });
    await expect.poll(() => forwarders.isAgentSocket(entry(reached, '0.0.0.0'))).toBe(false);
  });
});

describe('a port that listens on another address', () => {
  it.each(['0.0.0.0', '::', '192.0.2.7'])('on %s needs no relay', async (address) => {
    sockets = [entry(3000, address)];
    expect(await forwarders.dialPort(3000)).toBe(3000);
    sockets.push(entry(3000, '127.0.0.1'));
    expect(await forwarders.dialPort(3000)).toBe(3000);
  });

  it('loses its relay when it listened only on the loopback before', async () => {
    const port = await listen('127.0.0.1', echo);
    const reached = (await forwarders.dialPort(port)) ?? 0;
    sockets = [entry(port, '0.0.0.0')];
    expect(await forwarders.dialPort(port)).toBe(port);
    await expect.poll(() => forwarders.isAgentSocket(entry(reached, '0.0.0.0'))).toBe(false);
  });
});

describe('a relay', () => {
  it('is not opened to the agent, to another relay, or to a closed port', async () => {
    const port = await listen('127.0.0.1', echo);
    const reached = (await forwarders.dialPort(port)) ?? 0;
    sockets.push(entry(49_983, '0.0.0.0'), entry(reached, '0.0.0.0'));
    expect(await forwarders.dialPort(49_983)).toBeUndefined();
    expect(await forwarders.dialPort(reached)).toBeUndefined();
    expect(await forwarders.dialPort(1)).toBeUndefined();
    expect([reached, 49_983, port].map((each) => forwarders.isAgentSocket(entry(each, '0.0.0.0')))).toEqual([
      true,
      true,
      false,
    ]);
  });
});
