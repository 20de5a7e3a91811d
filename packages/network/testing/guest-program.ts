/** Runs in the namespace of a sandbox and does there what a test asks: the "guest" of these tests. */
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** How a connection went. */
export interface Talk {
  readonly isConnected: boolean;
  readonly received: string;
  /** `end` after the other side's end, the code of an error, or `open` when nothing more came in time. */
  readonly ended: string;
}

export interface TalkOptions {
  readonly host: string;
  readonly port: number;
  /** Sent one after the other, in latin1, with a pause between two. */
  readonly send?: readonly string[];
  readonly pauseMs?: number;
  readonly localPort?: number;
  /** Ends our side after sending, which a server that answers at the end waits for. */
  readonly isHalfClosed?: boolean;
  /** Given up after this; tests that expect an end never wait so long. */
  readonly ms?: number;
  readonly isIpv6?: boolean;
}

export const ACTIONS = {
  async talk(options: TalkOptions): Promise<Talk> {
    const { host, port, send = [], pauseMs = 0, localPort, ms = 10_000 } = options;
    const socket = connect({
      host,
      port,
      allowHalfOpen: true,
      ...(localPort === undefined ? {} : { localPort }),
    });
    const talk = { isConnected: false, received: '', ended: 'open' };
    socket.on('connect', () => (talk.isConnected = true));
    socket.on('data', (chunk) => (talk.received += chunk.toString('latin1')));
    const over = Promise.withResolvers<void>();
    socket.once('end', () => {
      talk.ended = 'end';
      over.resolve();
    });
    socket.once('error', ({ code = 'error' }: NodeJS.ErrnoException) => {
      talk.ended = code;
      over.resolve();
    });
    const timer = setTimeout(over.resolve, ms);
    void say(socket, send, pauseMs, options.isHalfClosed ?? true).catch(() => {});
    await over.promise;
    clearTimeout(timer);
    socket.destroy();
    return talk;
  },

  /** Opens many and keeps them until told otherwise. */
  async crowd({
    host,
    port,
    count,
  }: {
    host: string;
    port: number;
    count: number;
  }): Promise<Record<string, number>> {
    const ends: Record<string, number> = {};
    const tell = (how: string) => (ends[how] = (ends[how] ?? 0) + 1);
    const sockets = Array.from({ length: count }, () => connect({ host, port }));
    await Promise.all(
      sockets.map(async (socket) => {
        socket.on('error', () => {});
        const answered = once(socket, 'data').then(
          () => 'answered',
          (error: NodeJS.ErrnoException) => error.code ?? 'error',
        );
        tell(await Promise.race([answered, once(socket, 'close').then(() => 'closed')]));
      }),
    );
    for (const socket of sockets) socket.destroy();
    return ends;
  },

  /** The answer to a datagram, the code of an error, or `nothing`. */
  async datagram(options: { host: string; port: number; send: string; ms?: number; isIpv6?: boolean }) {
    const socket = createSocket(options.isIpv6 === true ? 'udp6' : 'udp4');
    try {
      socket.connect(options.port, options.host);
      await once(socket, 'connect');
      const answer = once(socket, 'message').then(
        ([bytes]) => (bytes as Buffer).toString('latin1'),
        ({ code = 'error' }: NodeJS.ErrnoException) => code,
      );
      socket.send(Buffer.from(options.send, 'latin1'));
      const late = new Promise<string>((resolve) => setTimeout(resolve, options.ms ?? 5_000, 'nothing'));
      return await Promise.race([answer, late]);
    } catch (thrown) {
      return (thrown as NodeJS.ErrnoException).code ?? 'error';
    } finally {
      socket.close();
    }
  },

  async resolve({ name, type, server }: { name: string; type: string; server: string }): Promise<unknown> {
    const resolver = new Resolver({ timeout: 5_000, tries: 1 });
    resolver.setServers([server]);
    return resolver.resolve(name, type).catch(({ code = 'error' }: NodeJS.ErrnoException) => code);
  },

  /** Sends back what it gets; never closes by itself when told to be stubborn. */
  async listen({ port, isStubborn = false }: { port: number; isStubborn?: boolean }): Promise<void> {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      held.push(socket);
      socket.on('error', () => {});
      socket.once('close', () => ended.push(socket.errored === null ? 'end' : 'reset'));
      socket.on('data', (chunk) => socket.write(chunk));
      socket.on('end', () => isStubborn || socket.end());
    });
    server.listen(port);
    await once(server, 'listening');
  },

  /** How the connections to `listen` ended so far. */
  async ends(): Promise<string[]> {
    return ended;
  },

  /** Opens a connection that is kept; resolves when it is open and something has come back. */
  async open({ host, port, send }: { host: string; port: number; send: string }): Promise<string> {
    const socket = connect({ host, port });
    held.push(socket);
    socket.once('close', () => ended.push(socket.errored === null ? 'end' : 'reset'));
    socket.on('error', () => {});
    socket.write(Buffer.from(send, 'latin1'));
    const [chunk] = await once(socket, 'data');
    return (chunk as Buffer).toString('latin1');
  },
} as const;

const held: Socket[] = [];
const ended: string[] = [];

async function say(
  socket: Socket,
  send: readonly string[],
  pauseMs: number,
  isHalfClosed: boolean,
): Promise<void> {
  await once(socket, 'connect');
  for (const [index, text] of send.entries()) {
    if (index > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    socket.write(Buffer.from(text, 'latin1'));
  }
  if (isHalfClosed) socket.end();
}

export type Action = keyof typeof ACTIONS;

interface Request {
  readonly id: number;
  readonly action: Action;
  readonly options: never;
}

process.on('disconnect', () => process.exit(0));
process.on('message', async ({ id, action, options }: Request) => {
  try {
    process.send?.({ id, result: await ACTIONS[action](options) });
  } catch (thrown) {
    process.send?.({ id, error: String(thrown) });
  }
});
