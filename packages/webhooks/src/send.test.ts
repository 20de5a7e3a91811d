import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { systemClock } from '@torpor/engine';
import type { Resolve } from '@torpor/network/address-check';
import { afterEach, describe, expect, it } from 'vitest';
import { AddressCheck } from './address-check.ts';
import { sendRequest } from './send.ts';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** Returns the port of a receiver on this machine. */
async function listen(listener: RequestListener): Promise<number> {
  server = createServer(listener);
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const loopback = new AddressCheck({ allowed: ['127.0.0.0/8'], clock: systemClock });
const strict = new AddressCheck({ allowed: [], clock: systemClock });
const request = (url: string, signal = new AbortController().signal) => ({
  url: new URL(url),
  headers: { 'webhook-id': 'evt_1' },
  body: '{"ü":1}',
  signal,
});

describe('a request of a webhook', () => {
  it('goes to the resolved address under the name of the URL', async () => {
    const seen = Promise.withResolvers<unknown>();
    const port = await listen((incoming, response) => {
      let body = '';
      incoming.on('data', (chunk) => {
        body += chunk;
      });
      incoming.on('end', () => {
        seen.resolve([
          incoming.method,
          incoming.url,
          incoming.headers.host,
          incoming.headers['webhook-id'],
          body,
        ]);
        response.writeHead(202).end();
      });
    });
    const send = sendRequest(loopback, async () => ['127.0.0.1']);
    expect(await send(request(`http://hooks.example.com:${port}/a?b=c`))).toBe(202);
    expect(await seen.promise).toEqual(['POST', '/a?b=c', `hooks.example.com:${port}`, 'evt_1', '{"ü":1}']);
  });

  it('resolves the name once, so that a second answer cannot lead it elsewhere', async () => {
    const port = await listen((_, response) => response.writeHead(200).end());
    const answers = [['127.0.0.1'], ['10.0.0.1']];
    const resolve: Resolve = async () => answers.shift() ?? [];
    expect(await sendRequest(loopback, resolve)(request(`http://rebinding.example.com:${port}/`))).toBe(200);
    expect(answers).toHaveLength(1);
  });

  it('does not follow a redirect', async () => {
    let requests = 0;
    const port = await listen((_, response) => {
      requests += 1;
      response.writeHead(307, { location: '/elsewhere' }).end();
    });
    expect(await sendRequest(loopback)(request(`http://127.0.0.1:${port}/`))).toBe(307);
    expect(requests).toBe(1);
  });

  it.each([
    ['this machine', ['127.0.0.1']],
    ['a private network', ['192.168.1.1']],
    ['the metadata service of a cloud', ['169.254.169.254']],
    ['a public and a private address', ['93.184.216.34', '10.0.0.1']],
  ])('is refused for a name of %s', async (_, addresses) => {
    const send = sendRequest(strict, async () => addresses);
    await expect(send(request('https://hooks.example.com/'))).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('ends when its time is over, also while the body of the response never ends', async () => {
    const port = await listen((_, response) => void response.writeHead(200).write('x'));
    const limit = new AbortController();
    const sent = sendRequest(loopback)(request(`http://127.0.0.1:${port}/`, limit.signal));
    server?.once('request', () => setImmediate(() => limit.abort()));
    const outcome = await sent.then(
      (status) => status,
      ({ code }) => code,
    );
    expect([200, 'unreachable']).toContain(outcome);
  });

  it('fails when nothing listens there', async () => {
    const port = await listen(() => {});
    server?.close();
    await expect(sendRequest(loopback)(request(`http://127.0.0.1:${port}/`))).rejects.toMatchObject({
      code: 'unreachable',
      message: expect.stringContaining('ECONNREFUSED'),
    });
  });
});
