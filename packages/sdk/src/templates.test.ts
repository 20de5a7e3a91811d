import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type ApiServer, apiServer, errorReply } from '../testing/api-server.ts';
import { recordedPace } from '../testing/recorded-pace.ts';
import { CHECKPOINT_ID } from '../testing/views.ts';
import { Torpor } from './client.ts';
import { ConflictError, TimeoutError } from './errors.ts';

const view = {
  name: 'app',
  runtime: 'gvisor',
  builtIn: false,
  state: 'ready',
  phase: null,
  checkpointId: CHECKPOINT_ID,
  root: { kind: 'own', digest: 'abc' },
  image: null,
  description: null,
  services: [],
  error: null,
  createdAt: 1,
};
const preparing = { ...view, state: 'preparing', phase: 'booting', checkpointId: null };

let server: ApiServer;
let torpor: Torpor;
beforeEach(async () => {
  server = await apiServer();
  torpor = new Torpor({ url: server.url, apiKey: 'secret', env: {}, pace: recordedPace() });
});
afterEach(() => server.close());

describe('a template', () => {
  it('is created from a checkpoint, read and deleted', async () => {
    server.answer('POST /v1/templates', { status: 201, json: view });
    server.answer('GET /v1/templates/app', { json: view });
    server.answer('DELETE /v1/templates/app', { status: 204, text: '' });
    expect(await torpor.templates.create({ name: 'app', from: CHECKPOINT_ID })).toEqual(view);
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({ name: 'app', from: CHECKPOINT_ID });
    expect(await torpor.templates.get('app')).toEqual(view);
    await torpor.templates.delete('app');
    expect(server.requests.at(-1)).toMatchObject({ method: 'DELETE', path: '/v1/templates/app' });
  });

  it.each([
    ['at once', () => new Blob(['a root'])],
    ['as it comes', () => ReadableStream.from([Buffer.from('a '), Buffer.from('root')])],
  ])('is created from an archive that is sent %s, with its definition', async (_, archive) => {
    server.answer('POST /v1/templates', { status: 201, json: view });
    const services = [{ name: 'web', command: 'npm start', port: 3000 }];
    const options = { idempotencyKey: 'k' };
    await torpor.templates.create({ name: 'app', archive: archive() as Blob, services }, options);
    const { query, headers, body } = server.requests[0] ?? {};
    expect(query?.get('name')).toBe('app');
    expect(JSON.parse(query?.get('definition') ?? '')).toEqual({ services });
    expect(headers).toMatchObject({ 'content-type': 'application/x-tar', 'idempotency-key': 'k' });
    expect(body).toBe('a root');
  });

  it('is created from an image of a registry, or of an archive', async () => {
    server.answer('POST /v1/templates', { status: 201, json: view });
    const registryCredentials = { username: 'ada', password: 'open sesame' };
    const request = { name: 'app', image: 'ghcr.io/acme/app:1', registryCredentials, entrypoint: true };
    await torpor.templates.create(request);
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual(request);
    await torpor.templates.create({ name: 'app', archive: 'an image', format: 'oci', entrypoint: true });
    const { query, body } = server.requests[1] ?? {};
    expect([query?.get('format'), query?.get('entrypoint'), body]).toEqual(['oci', 'true', 'an image']);
  });

  it('is waited for when its preparation takes longer than a request may', async () => {
    const states = [preparing, preparing, view];
    server.answer('POST /v1/templates', errorReply(504, 'timeout', 'It is still being prepared.'));
    server.answer('GET /v1/templates/app', () => ({ json: states.shift() }));
    expect(await torpor.templates.create({ name: 'app', archive: new Blob(['x']) })).toEqual(view);
    expect(states).toEqual([]);
  });

  it('fails with the reason, also after the request has timed out', async () => {
    const error = { code: 'conflict', message: 'No luck.', retryable: false, hint: 'Look.' };
    server.answer('POST /v1/templates', errorReply(504, 'timeout', 'It took too long.'));
    server.answer('GET /v1/templates/app', { json: { ...view, state: 'failed', checkpointId: null, error } });
    const request = { name: 'app', archive: new Blob(['x']) };
    await expect(torpor.templates.create(request)).rejects.toBeInstanceOf(ConflictError);
    server.answer('GET /v1/templates/app', errorReply(404, 'not_found', 'There is none.'));
    await expect(torpor.templates.create(request)).rejects.toBeInstanceOf(TimeoutError);
  });
});
