/** A way to a server that can be broken, and lead to another server afterwards. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface BreakableWay {
  readonly url: string;
  /** Where new connections lead from now on. */
  leadTo(url: string): void;
  /** The next thing that the server says is lost, and its connection with it. */
  loseNextAnswer(): void;
  /** Breaks off whatever is open. */
  cut(): void;
  close(): Promise<void>;
}

export async function breakableWay(to: string): Promise<BreakableWay> {
  let target = new URL(to);
  let losing = false;
  const open = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect({ host: target.hostname, port: Number(target.port) });
    const end = () => {
      client.destroy();
      upstream.destroy();
      open.delete(client);
    };
    open.add(client);
    for (const socket of [client, upstream]) socket.on('error', end).on('close', end);
    client.pipe(upstream);
    upstream.on('data', (bytes) => {
      if (!losing) return client.write(bytes);
      losing = false;
      return end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    leadTo: (url) => {
      target = new URL(url);
    },
    loseNextAnswer: () => {
      losing = true;
    },
    cut: () => {
      for (const client of open) client.destroy();
    },
    close: async () => {
      for (const client of open) client.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
