import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { unhurried } from '@torpor/engine/testing';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SentryConnection, type SentryMethod, SentryRefusal } from './control-socket.ts';

const callSentry = (path: string, method: SentryMethod, signal: AbortSignal) =>
  new SentryConnection(path).call(method, signal);

describe('a call of a sentry', () => {
  let top: string;
  let server: Server;
  let asked: string;
  let path: string;

  beforeEach(async () => {
    top = await mkdtemp(join(tmpdir(), 'torpor-c-'));
    path = join(top, 'sock');
    asked = '';
  });

  afterEach(async () => {
    server?.close();
    await rm(top, { recursive: true });
  });

  function serve(answer: (socket: Socket) => void): Promise<void> {
    server = createServer((socket) => {
      socket.on('data', (chunk) => {
        asked += chunk.toString();
        answer(socket);
      });
      socket.on('error', () => {});
    });
    return new Promise((resolve) => server.listen(path, resolve));
  }

  it('sends one JSON object and takes one as the answer, also in pieces', async () => {
    await serve((socket) => {
      socket.write('{"success":true,');
      setTimeout(() => socket.write('"err":"","result":{}}\n'), 10);
    });

    await callSentry(path, 'containerManager.Resume', unhurried);

    expect(JSON.parse(asked)).toEqual({ method: 'containerManager.Resume', arg: {} });
  });

  it('fails with the reason of the sentry', async () => {
    await serve((socket) => socket.write('{"success":false,"err":"unknown method","result":null}\n'));

    const call = callSentry(path, 'containerManager.Resume', unhurried);
    await expect(call).rejects.toBeInstanceOf(SentryRefusal);
    await expect(call).rejects.toMatchObject({
      code: 'internal',
      message: 'The sentry refused containerManager.Resume: unknown method',
    });
  });

  it('fails when there is no sentry, and when it hangs up', async () => {
    const call = () => callSentry(path, 'containerManager.Resume', unhurried);
    await expect(call()).rejects.toMatchObject({ code: 'unreachable' });
    await serve((socket) => socket.destroy());
    await expect(call()).rejects.toMatchObject({ code: 'unreachable' });
    await expect(call()).rejects.not.toBeInstanceOf(SentryRefusal);
  });

  it('can be made on a connection that was opened before, and fails when that has failed', async () => {
    await serve((socket) => socket.write('{"success":true,"err":"","result":{}}\n'));
    const early = new SentryConnection(path);
    await new Promise((resolve) => setImmediate(resolve));
    await early.call('containerManager.Resume', unhurried);

    const missing = new SentryConnection(join(top, 'missing'));
    await new Promise((resolve) => setTimeout(resolve, 20));
    await expect(missing.call('containerManager.Resume', unhurried)).rejects.toMatchObject({
      code: 'unreachable',
    });
  });

  it('ends when the caller gives up', async () => {
    await serve(() => {});

    const call = callSentry(path, 'containerManager.Resume', AbortSignal.timeout(50));

    await expect(call).rejects.toMatchObject({ name: 'TimeoutError' });
  });
});
