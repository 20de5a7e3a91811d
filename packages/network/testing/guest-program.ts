/** The "guest" of network tests: runs in the namespace of a sandbox and performs the actions of a test. */
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** The result of a connection. */
export interface Talk {
  readonly isConnected: boolean;
  readonly received: string;
  /** `end` after the end of the other side, an error code, or `open` when nothing more arrived in time. */
  readonly ended: string;
}

export interface TalkOptions {
  readonly host: string;
  readonly port: number;
  /** Parts that are sent one after the other, in latin1, with pauses. */
  readonly send?: readonly string[];
  readonly pauseMs?: number;
  readonly localPort?: number;
  /** Ends this side after sending, for servers that answer at the end. */
  readonly isHalfClosed?: boolean;
  /** Timeout. Tests that expect an end never wait so long. */
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

  /** Opens many connections and keeps them until the next action. */
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

  /** Resolves to the answer to a datagram, an error code, or `nothing`. */
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

  /** Echoes what it receives. With `stubborn` it never closes by itself. */
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

  /** The results of the connections to `listen` so far. */
  async ends(): Promise<string[]> {
    return ended;
  },

  /** Opens a connection and keeps it. Resolves when it is open and a first answer has arrived. */
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
