import { once } from 'node:events';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  dockerArchive,
  ociArchive,
  REGISTRY_USER,
  startRegistry,
  type TestRegistry,
  testImage,
  whyNoRegistry,
} from '@torpor/images/testing';
import type { TemplateView } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, type TestServerOptions, testServer } from '../../testing/test-server.ts';

const web = { name: 'web', command: 'serve', port: 3000 };
const TAR = { 'content-type': 'application/x-tar' };

let server: TestServer;
async function open(options: TestServerOptions = {}): Promise<void> {
  await server?.dispose();
  server = await testServer(options);
}
beforeEach(async () => {
  server = await testServer();
});
afterEach(() => server.dispose());

interface Sending {
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
}

function send(bytes: string, { query = { name: 'app' }, headers = {} }: Sending = {}) {
  const url = `/v1/templates?${new URLSearchParams(query)}`;
  return server.ask('POST', url, { body: Buffer.from(bytes), headers: { ...TAR, ...headers } });
}

async function snapshot(): Promise<string> {
  const id = await server.create({ services: [web] });
  return (await server.ask('POST', `/v1/sandboxes/${id}/checkpoints`, { body: {} })).json().id;
}

const names = async () =>
  (await server.ask('GET', '/v1/templates')).json().items.map(({ name }: TemplateView) => name);
const uploads = () => readdir(server.uploadsDir);

describe.skipIf(whyNoRegistry !== null)(`a template from an image${whyNoRegistry ?? ''}`, () => {
  let registry: TestRegistry;
  const image = testImage([[{ name: 'etc/note', content: 'a root' }]], {
    config: {
      Env: ['LEVEL=image', 'OTHER=1'],
      WorkingDir: '/srv',
      Cmd: ["it's"],
      ExposedPorts: { '80/tcp': {} },
    },
  });
  beforeAll(async () => {
    registry = await startRegistry({ credentials: true });
    await registry.push('app', '1', image);
  });
  afterAll(() => registry?.stop());
  const ask = (body: object, key = server.keys.default, headers = {}) =>
    server.ask('POST', '/v1/templates', {
      body: { name: 'app', image: `${registry.name}/app:1`, ...body },
      key,
      headers,
    });

  it('is fetched with the credentials of the request, which are stored and logged nowhere', async () => {
    await open({ registryNetworks: ['127.0.0.1/32'] });
    const refused = await ask({ registryCredentials: { username: 'ada', password: 'wrong-one' } });
    expect([refused.statusCode, errorIn(refused).code]).toEqual([403, 'forbidden']);
    expect(await names()).toEqual(['base']);
    const made = await ask(
      { registryCredentials: REGISTRY_USER, env: { LEVEL: 'own' }, entrypoint: true },
      server.keys.default,
      { 'idempotency-key': 'k' },
    );
    expect([made.statusCode, made.json()]).toMatchObject([
      201,
      {
        state: 'ready',
        image: {
          reference: `${registry.name}/app:1`,
          digest: image.manifestDigest,
          workdir: '/srv',
          ports: [80],
        },
        services: [{ name: 'start', command: "exec 'it'\\''s'", port: 80 }],
      },
    ]);
    const id = await server.create({ template: 'app' });
    const [row] = await server.world.db.query<{ config: string }>(
      'SELECT config FROM sandboxes WHERE id = $1',
      [id],
    );
    expect(JSON.parse(row?.config ?? '')).toMatchObject({
      env: { LEVEL: 'own', OTHER: '1' },
      workdir: '/srv',
    });
    const tables = ['templates', 'request_replays', 'events', 'checkpoints', 'sandboxes'];
    const rows = await Promise.all(tables.map((table) => server.world.db.query(`SELECT * FROM ${table}`)));
    for (const password of ['wrong-one', REGISTRY_USER.password])
      expect(JSON.stringify(rows) + server.log.join()).not.toContain(password);
  });

  it("is fetched with the server's credentials for the default organisation alone", async () => {
    const dockerConfig = join(tmpdir(), `torpor-docker-config-${process.pid}.json`);
    const auth = Buffer.from(Object.values(REGISTRY_USER).join(':')).toString('base64');
    await writeFile(dockerConfig, JSON.stringify({ auths: { [registry.name]: { auth } } }));
    await open({ registryNetworks: ['127.0.0.1/32'], dockerConfig });
    expect(errorIn(await ask({}, server.keys.other)).code).toBe('forbidden');
    expect((await ask({})).statusCode).toBe(201);
    await rm(dockerConfig);
  });

  it('is not fetched from the network of the server unless its operator allows it', async () => {
    const refused = await ask({});
    expect([refused.statusCode, errorIn(refused).code]).toEqual([403, 'forbidden']);
    expect(errorIn(refused).hint).toContain('--registry-networks');
  });

  it('is made from an archive, which is removed', async () => {
    for (const [format, bytes] of [
      ['oci', ociArchive(image)],
      ['docker', dockerArchive(image)],
    ] as const) {
      const url = `/v1/templates?${new URLSearchParams({ name: format, format, entrypoint: 'true' })}`;
      const made = await server.ask('POST', url, { body: bytes, headers: TAR });
      expect([made.statusCode, made.json()]).toMatchObject([
        201,
        { image: { reference: null, workdir: '/srv' }, services: [{ name: 'start' }] },
      ]);
    }
    const wrong = await server.ask('POST', '/v1/templates?name=x&format=oci', {
      body: dockerArchive(image),
      headers: TAR,
    });
    expect([wrong.statusCode, errorIn(wrong).code]).toEqual([400, 'invalid_request']);
    expect(await uploads()).toEqual([]);
  });

  it('is refused when the request is not clear', async () => {
    for (const [body, words] of [
      [{ image: 'No Image' }, 'not the name of an image'],
      [{ from: `ckpt_${'0'.repeat(20)}` }, 'not both'],
      [{ registryCredentials: { username: 'ada' } }, 'registryCredentials.password'],
    ] as const) {
      const refused = await ask(body);
      expect([refused.statusCode, errorIn(refused).message]).toEqual([400, expect.stringContaining(words)]);
    }
  });
});

describe('a template from a checkpoint', () => {
  it('is created, read, listed, used and deleted', async () => {
    const from = await snapshot();
    const body = { name: 'seeded', from, description: 'with data' };
    const made = await server.ask('POST', '/v1/templates', { body });
    expect([made.statusCode, made.json()]).toMatchObject([
      201,
      { name: 'seeded', state: 'ready', checkpointId: from, description: 'with data', services: [web] },
    ]);
    expect((await server.ask('GET', '/v1/templates/seeded')).json()).toEqual(made.json());
    expect(await names()).toEqual(['base', 'seeded']);
    const sandbox = (await server.ask('POST', '/v1/sandboxes', { body: { template: 'seeded' } })).json();
    expect(sandbox).toMatchObject({ template: 'seeded', baseId: from, services: [web] });
    expect((await server.ask('DELETE', '/v1/templates/seeded')).statusCode).toBe(204);
    expect((await server.ask('GET', '/v1/templates/seeded')).statusCode).toBe(404);
    expect((await server.ask('DELETE', '/v1/templates/base')).statusCode).toBe(403);
  });

  it('is created once per idempotency key, which refuses another body', async () => {
    const body = { name: 'seeded', from: await snapshot() };
    const headers = { 'idempotency-key': 'k' };
    const first = await server.ask('POST', '/v1/templates', { body, headers });
    const again = await server.ask('POST', '/v1/templates', { body, headers });
    expect([again.statusCode, again.json()]).toEqual([201, first.json()]);
    const other = await server.ask('POST', '/v1/templates', { body: { ...body, name: 'x' }, headers });
    expect(errorIn(other).code).toBe('idempotency_mismatch');
    const keyless = await server.ask('POST', '/v1/templates', { body });
    expect(errorIn(keyless).code).toBe('conflict');
  });

  it('takes the place of another on request, and says which user and directory commands get', async () => {
    const [first, second] = [await snapshot(), await snapshot()];
    await server.ask('POST', '/v1/templates', { body: { name: 'seeded', from: first } });
    const body = { name: 'seeded', from: second, replace: true, user: 'ada', workdir: '/srv' };
    const made = await server.ask('POST', '/v1/templates', { body });
    expect([made.statusCode, made.json()]).toMatchObject([201, { checkpointId: second }]);
    expect(await names()).toEqual(['base', 'seeded']);
    const id = await server.create({ template: 'seeded' });
    const [row] = await server.world.db.query<{ config: string }>(
      'SELECT config FROM sandboxes WHERE id = $1',
      [id],
    );
    expect(JSON.parse(row?.config ?? '')).toMatchObject({ user: 'ada', workdir: '/srv' });
  });

  it('cannot be created from a path of the server', async () => {
    for (const body of [
      { name: 'x', from: '/etc' },
      { name: 'x', archive: '/etc/passwd' },
      { name: 'x', root: { kind: 'archive', path: '/etc/passwd' } },
    ]) {
      const response = await server.ask('POST', '/v1/templates', { body });
      expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
    }
  });

  it('accepts no query parameters', async () => {
    const body = { name: 'seeded', from: await snapshot() };
    const response = await server.ask('POST', '/v1/templates?name=other', { body });
    expect(errorIn(response).code).toBe('invalid_request');
  });
});

describe('a template from an archive', () => {
  it('is created from the bytes and the definition, and leaves no file behind', async () => {
    const definition = JSON.stringify({ services: [web], env: { A: '1' }, description: 'mine' });
    const made = await send('a root', { query: { name: 'app', definition } });
    expect([made.statusCode, made.json()]).toMatchObject([
      201,
      { name: 'app', state: 'ready', builtIn: false, description: 'mine', services: [web] },
    ]);
    expect(made.body).not.toContain('"A"');
    const id = await server.create({ template: 'app' });
    expect(server.runtime.look(id)).toEqual({ files: { '/root': 'a root' }, counter: 1 });
    expect(await uploads()).toEqual([]);
  });

  it('is refused with the reason, and leaves nothing', async () => {
    const response = await send('hostile');
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
    expect(await names()).toEqual(['base']);
    expect(await uploads()).toEqual([]);
  });

  it.each<[string, Sending]>([
    ['no name', { query: {} }],
    ['a name that is a path', { query: { name: '../etc' } }],
    ['a definition that is not JSON', { query: { name: 'app', definition: '{' } }],
    ['a definition with an unknown field', { query: { name: 'app', definition: '{"root":"/etc"}' } }],
    ['a definition with a NUL', { query: { name: 'app', definition: '{"description":"\\u0000"}' } }],
    ['a definition with too deep nesting', { query: { name: 'app', definition: '['.repeat(100) } }],
    ['an unknown query parameter', { query: { name: 'app', path: '/etc' } }],
  ])('is not created with %s', async (_, sending) => {
    const response = await send('a root', sending);
    expect([response.statusCode, errorIn(response).code]).toEqual([400, 'invalid_request']);
    expect(await uploads()).toEqual([]);
  });

  it('is not created with a taken name, an unknown runtime, or another content type', async () => {
    await send('a root');
    expect((await send('a root')).statusCode).toBe(409);
    expect((await send('a root', { query: { name: 'x', runtime: 'none' } })).statusCode).toBe(422);
    expect((await send('x', { headers: { 'content-type': 'application/zip' } })).statusCode).toBe(415);
    expect(await uploads()).toEqual([]);
  });

  it('is refused when the runtime cannot run it', async () => {
    await open({ runtime: { capabilities: { customTemplates: false } } });
    const response = await send('a root');
    expect([response.statusCode, errorIn(response).code]).toEqual([422, 'capability_unsupported']);
  });

  it('is created once per idempotency key, which refuses another archive', async () => {
    const headers = { 'idempotency-key': 'k' };
    const first = await send('a root', { headers });
    const again = await send('a root', { headers });
    expect([again.statusCode, again.json()]).toEqual([201, first.json()]);
    expect(errorIn(await send('another root', { headers })).code).toBe('idempotency_mismatch');
    expect(await uploads()).toEqual([]);
  });

  it('may not be larger than the limit, whatever its headers say', async () => {
    await open({ settings: { maxTemplateBytes: 10 } });
    const said = await send('more than ten bytes');
    expect([said.statusCode, errorIn(said).code]).toEqual([413, 'invalid_request']);
    const upload = await beginUpload();
    upload.write('more than ten bytes');
    const [response] = await once(upload, 'response');
    expect(response.statusCode).toBe(413);
    upload.destroy();
    await expect.poll(uploads).toEqual([]);
  });

  it('is not created from an incomplete archive', async () => {
    const upload = await beginUpload();
    upload.on('error', () => {});
    upload.write('half a root');
    await expect.poll(uploads).toHaveLength(1);
    upload.destroy();
    await expect.poll(uploads).toEqual([]);
    expect(await names()).toEqual(['base']);
  });

  it('continues after the deadline of its request, and shows its progress', async () => {
    let goOn = () => {};
    const gate = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    await open({
      settings: { lifecycleMs: 100, graceMs: 1 },
      wrap: (_, runtime) => {
        const real = runtime.prepareTemplate.bind(runtime);
        runtime.prepareTemplate = async (order, staging) => {
          if (order.root.kind === 'archive') {
            await order.progress('booting');
            await gate;
          }
          return real(order, staging);
        };
        return {};
      },
    });
    const response = await send('a root');
    expect([response.statusCode, errorIn(response).hint]).toEqual([504, expect.stringContaining('GET /v1/')]);
    expect((await server.ask('GET', '/v1/templates/app')).json()).toMatchObject({
      state: 'preparing',
      phase: 'booting',
    });
    expect(await uploads()).toHaveLength(1);
    goOn();
    const state = async () => (await server.ask('GET', '/v1/templates/app')).json().state;
    await expect.poll(state).toBe('ready');
    await expect.poll(uploads).toEqual([]);
    const { items } = (await server.ask('GET', '/v1/templates/app/log')).json();
    expect(items.map(({ text }: { text: string }) => text)).toEqual([
      'booting',
      'unpacking',
      'sealing',
      'ready',
    ]);
    expect((await server.ask('GET', '/v1/templates/none/log')).statusCode).toBe(404);
  });
});

async function beginUpload() {
  return httpRequest(`${await server.listen()}/v1/templates?name=app`, {
    method: 'POST',
    headers: { ...TAR, authorization: `Bearer ${server.keys.default}` },
    agent: false,
  });
}
