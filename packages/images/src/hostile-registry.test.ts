/** Registries that try to lead the server elsewhere. A real registry cannot be made to. */
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { systemClock } from '@torpor/engine';
import { failureOf, unhurried } from '@torpor/engine/testing';
import { afterEach, describe, expect, it } from 'vitest';
import { testImage } from '../testing/test-image.ts';
import { Images } from './image-source.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});

async function serve(listener: RequestListener, host = '127.0.0.1'): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  server.listen(0, host);
  await once(server, 'listening');
  return `${host}:${(server.address() as AddressInfo).port}`;
}

const credentials = { username: 'ada', password: 'secret' };
const images = new Images({ allowed: ['127.0.0.1/32'], clock: systemClock, dockerConfig: '/nowhere' });
const open = (registry: string) =>
  images.inRegistry(`${registry}/app:1`, { credentials, mayUseServerCredentials: false }).open(unhurried);
const image = testImage([[{ name: 'etc/one', content: 'x'.repeat(100_000) }]], {
  compress: (layer) => layer,
});

/** Serves the image; `blob` may answer instead. */
function registryOf(blob: RequestListener = () => {}): RequestListener {
  return (request, response) => {
    const [, digest = ''] = /\/blobs\/(sha256:[0-9a-f]+)/.exec(request.url ?? '') ?? [];
    if (digest === '') {
      response.end(image.manifest);
      return;
    }
    blob(request, response);
    if (!response.headersSent && !response.destroyed) response.end(image.blobs.get(digest));
  };
}

describe('a registry', () => {
  it('gets a token of its token service, which gets the credentials', async () => {
    const seen: (string | undefined)[] = [];
    const tokens = await serve((request, response) => {
      seen.push(request.url, request.headers.authorization);
      response.end(JSON.stringify({ token: 'the-token' }));
    });
    const registry = await serve((request, response) => {
      if (request.headers.authorization === 'Bearer the-token') return registryOf()(request, response);
      const challenge = `Bearer realm="http://${tokens}/token",service="here"`;
      response.writeHead(401, { 'www-authenticate': challenge }).end();
    });
    expect((await open(registry)).about.digest).toBe(image.manifestDigest);
    expect(seen).toEqual([
      '/token?scope=repository%3Aapp%3Apull&service=here',
      `Basic ${Buffer.from('ada:secret').toString('base64')}`,
    ]);
  });

  it('cannot name a token service on a private address', async () => {
    for (const realm of ['http://127.0.0.2:1/token', 'https://10.0.0.1/token', 'https://169.254.169.254/'])
      expect(
        await failureOf(
          open(
            await serve(
              (_, response) =>
                void response.writeHead(401, { 'www-authenticate': `Bearer realm="${realm}"` }).end(),
            ),
          ),
        ),
      ).toMatchObject({ code: 'forbidden' });
  });

  it('cannot redirect to a private address, nor away from TLS', async () => {
    for (const location of [
      'http://127.0.0.2:1/',
      'https://192.168.1.1/',
      'http://example.com/',
      'file:///etc/passwd',
    ])
      expect(
        await failureOf(open(await serve((_, response) => void response.writeHead(307, { location }).end()))),
      ).toMatchObject({ code: 'forbidden' });
  });

  it('gives no credentials to the host that it redirects to', async () => {
    const seen: (string | undefined)[] = [];
    const storage = await serve((request, response) => {
      seen.push(request.headers.authorization);
      response.end(image.manifest);
    });
    const registry = await serve((request, response) => {
      if (request.headers.authorization === undefined)
        return response.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end();
      if (request.url?.includes('/blobs/') === true) return registryOf()(request, response);
      return response.writeHead(307, { location: `http://${storage}/elsewhere` }).end();
    });
    await open(registry);
    expect(seen).toEqual([undefined]);
  });

  it('is asked for the rest of a layer whose connection broke', async () => {
    const layer = image.layers[0] ?? Buffer.alloc(0);
    const ranges: (string | undefined)[] = [];
    const registry = await serve(
      registryOf((request, response) => {
        if (!request.url?.endsWith([...image.blobs.keys()][1] ?? '')) return;
        ranges.push(request.headers.range);
        const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
        response.writeHead(from > 0 ? 206 : 200, { 'content-length': layer.length - from });
        if (from > 0) response.end(layer.subarray(from));
        else response.write(layer.subarray(0, 30_000), () => response.destroy());
      }),
    );
    const found = await open(registry);
    const tar = await buffer(Readable.from(found.layers[0]?.read(unhurried, () => {}) ?? []));
    expect(tar.equals(layer)).toBe(true);
    expect(ranges).toEqual([undefined, 'bytes=30000-']);
  });

  it('cannot have another manifest under a digest', async () => {
    const registry = await serve(registryOf());
    const reference = `${registry}/app@sha256:${'0'.repeat(64)}`;
    const opened = images.inRegistry(reference, { mayUseServerCredentials: false }).open(unhurried);
    expect(await failureOf(opened)).toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining('another manifest'),
    });
  });

  it('cannot fill the memory with a document', async () => {
    const registry = await serve((_, response) => void response.end(Buffer.alloc(5 * 1024 * 1024)));
    expect(await failureOf(open(registry))).toMatchObject({ code: 'invalid_request' });
  });
});
