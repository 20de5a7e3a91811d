import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { dial, isDialledToSelf } from './dial.ts';

describe('dialling', () => {
  const never = new AbortController().signal;
  let server: Server;
  let port: number;
  beforeEach(async () => {
    server = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  });
  afterEach(() => server.close());

  it('connects to the first address that answers', async () => {
    const socket = await dial(['127.0.0.2', '127.0.0.3', '127.0.0.1'], port, 5_000, never);
    expect(socket?.remoteAddress).toBe('127.0.0.1');
    socket?.destroy();
  });

  it('tries only a few addresses, each for a limited time', async () => {
    expect(
      await dial(['127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.1'], port, 5_000, never),
    ).toBeUndefined();
    expect(await dial([], port, 5_000, never)).toBeUndefined();
  });

  it('stops on abort', async () => {
    const over = new AbortController();
    over.abort();
    expect(await dial(['127.0.0.1'], port, 5_000, over.signal)).toBeUndefined();
  });

  it('detects that it reached its own machine, whatever a list of addresses says', async () => {
    const socket = await dial(['127.0.0.1'], port, 5_000, never);
    expect(socket !== undefined && isDialledToSelf(socket)).toBe(true);
    socket?.destroy();
  });
});
