/** A client that sends arbitrary bytes. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export interface RawClient {
  readonly socket: Socket;
  /** Everything received so far. */
  text(): string;
  send(text: string | Buffer): void;
  /** Resolves with everything received once it matches, or the server has closed its side. */
  until(wanted: RegExp): Promise<string>;
  /** Resolves with everything received when the connection is closed. */
  closed(): Promise<string>;
}

export async function openRaw(port: number): Promise<RawClient> {
  const socket = connect({ port, host: '127.0.0.1' });
  let text = '';
  let onChange = () => {};
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1');
    onChange();
  });
  for (const event of ['end', 'close', 'error']) socket.on(event, () => onChange());
  await once(socket, 'connect');
  const closed = new Promise<string>((resolve) => socket.on('close', () => resolve(text)));
  return {
    socket,
    text: () => text,
    send: (bytes) => void socket.write(bytes),
    closed: () => closed,
    until: (wanted) =>
      new Promise((resolve) => {
        const look = () => {
          if (wanted.test(text) || socket.destroyed || socket.readableEnded) resolve(text);
        };
        onChange = look;
        look();
      }),
  };
}

/** Sends one request on its own connection, and resolves with the bytes of the response. */
export async function askRaw(port: number, lines: readonly string[], body = ''): Promise<string> {
  const client = await openRaw(port);
  client.send(`${lines.join('\r\n')}\r\n\r\n${body}`);
  const text = await client.until(/^HTTP\/1\.1 [2-5][\s\S]*\r\n\r\n/);
  client.socket.destroy();
  return text;
}
