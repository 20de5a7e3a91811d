/** Bytes on a connection, as a client sends them that keeps to no rules. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export interface RawClient {
  readonly socket: Socket;
  /** Everything that has come so far. */
  text(): string;
  send(text: string | Buffer): void;
  /** Resolves with all that has come once it looks as wanted, or the other side has ended. */
  until(wanted: RegExp): Promise<string>;
  /** Resolves with all that came when the connection is closed. */
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

/** One request on a connection of its own, closed by the server's answer; the answer's bytes. */
export async function askRaw(port: number, lines: readonly string[], body = ''): Promise<string> {
  const client = await openRaw(port);
  client.send(`${lines.join('\r\n')}\r\n\r\n${body}`);
  const text = await client.until(/^HTTP\/1\.1 [2-5][\s\S]*\r\n\r\n/);
  client.socket.destroy();
  return text;
}
