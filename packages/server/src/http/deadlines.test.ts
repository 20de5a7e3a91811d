import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { type Database, systemClock } from '@torpor/engine';
import { type FaultyCall, withFaults } from '@torpor/engine/testing';
import { isId, type SandboxId } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';

/** Short, so that the tests are quick; much shorter than the engine's own time limits. */
const SHORT = { lifecycleMs: 300, readMs: 200, checkpointReadMs: 100, graceMs: 20 };

const never = () => new Promise<never>(() => {});

describe('when the runtime hangs', () => {
  let server: TestServer;
  let id: SandboxId;
  const hanging = new Set<FaultyCall>();
  beforeAll(async () => {
    server = await testServer({
      settings: SHORT,
      engineSettings: { callMs: 2_000, operationMs: 4_000, observeMs: 50 },
      wrap: (_, runtime) => {
        const faulty = withFaults(runtime, systemClock, (call) => (hanging.has(call) ? 'hang' : undefined));
        return { runtimes: new Map([[faulty.name, faulty]]) };
      },
    });
    id = await server.create();
  });
  afterAll(() => server.dispose());

  it('a pause is answered with the operation that is still in progress', async () => {
    hanging.add('freeze');
    const response = await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    expect(response.statusCode).toBe(504);
    const { operationId = '', ...error } = errorIn(response);
    expect(error).toMatchObject({ code: 'timeout', retryable: true, sandboxId: id });
    expect(isId('op', operationId)).toBe(true);
    const operation = await server.ask('GET', `/v1/operations/${operationId}`);
    expect(operation.json()).toMatchObject({ kind: 'pause', sandboxId: id });
    expect(server.log.join('')).toContain(`"operationId":"${operationId}"`);
    hanging.clear();
  });

  it('a create is answered with the operation that is still in progress', async () => {
    hanging.add('start');
    const response = await server.ask('POST', '/v1/sandboxes', { body: {} });
    expect([response.statusCode, errorIn(response).code]).toEqual([504, 'timeout']);
    const operation = await server.ask('GET', `/v1/operations/${errorIn(response).operationId}`);
    expect(operation.json()).toMatchObject({ kind: 'create', outcome: null });
    hanging.clear();
  });

  it('getting a sandbox reports unknown evidence', async () => {
    const sandbox = await server.create();
    hanging.add('observe');
    const response = await server.ask('GET', `/v1/sandboxes/${sandbox}`);
    expect(response.json()).toMatchObject({ state: 'running', evidence: 'unknown' });
    hanging.clear();
  });
});

describe('when the agent of a sandbox cannot be found', () => {
  it('exec and files are answered, and the lease of the sandbox is released', async () => {
    const server = await testServer({
      settings: SHORT,
      engineSettings: { observeMs: 5_000 },
      wrap: (_, runtime) => {
        runtime.agent = never;
        return {};
      },
    });
    const id = await server.create();
    const asked = [
      await server.ask('POST', `/v1/sandboxes/${id}/exec`, { body: { command: 'true' } }),
      await server.ask('GET', `/v1/sandboxes/${id}/files?path=a`),
      await server.ask('GET', `/v1/sandboxes/${id}/processes`),
    ];
    expect(asked.map((response) => [response.statusCode, errorIn(response).code])).toEqual(
      Array(3).fill([504, 'timeout']),
    );
    await server.dispose();
  });
});

describe('when the checkpoint store hangs', () => {
  let server: TestServer;
  let id: SandboxId;
  let checkpointId: string;
  let hangs = false;
  beforeAll(async () => {
    server = await testServer({
      settings: SHORT,
      engineSettings: { callMs: 1_000, operationMs: 1_000 },
      wrap: ({ store }) => ({
        store: new Proxy(store, {
          get: (target, name) => {
            const value = Reflect.get(target, name, target);
            const isCall = ['read', 'inspect', 'verify', 'seal', 'stage'].includes(String(name));
            if (typeof value !== 'function') return value;
            return hangs && isCall ? never : value.bind(target);
          },
        }),
      }),
    });
    id = await server.create();
    checkpointId = (await server.ask('POST', `/v1/sandboxes/${id}/pause`)).json().checkpoint.id;
    hangs = true;
  });
  afterAll(() => server.dispose());

  it('requests about checkpoints are still answered (R97)', async () => {
    const list = await server.ask('GET', `/v1/sandboxes/${id}/checkpoints`);
    expect(list.json().items).toMatchObject([{ id: checkpointId, state: 'sealed' }]);
    const one = await server.ask('GET', `/v1/checkpoints/${checkpointId}`);
    expect(one.json()).toMatchObject({ id: checkpointId, health: 'ok' });
  });

  it('a verification and a resume are answered with what is known', async () => {
    const verified = await server.ask('POST', `/v1/checkpoints/${checkpointId}/verify`);
    expect([verified.statusCode, errorIn(verified).code]).toEqual([504, 'timeout']);
    const resumed = await server.ask('POST', `/v1/sandboxes/${id}/resume`);
    expect([resumed.statusCode, errorIn(resumed)]).toMatchObject([504, { code: 'timeout', sandboxId: id }]);
  });
});

describe('when the database hangs', () => {
  let server: TestServer;
  let hangs = false;
  const hanging = (db: Database): Database =>
    new Proxy(db, {
      get: (target, name) => {
        const value = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        return hangs && (name === 'query' || name === 'transaction') ? never : value.bind(target);
      },
    });
  let id: SandboxId;
  beforeAll(async () => {
    let shared: Database | undefined;
    server = await testServer({
      settings: SHORT,
      wrap: ({ db }) => {
        shared = hanging(db);
        return { db: shared };
      },
      wrapApp: () => ({ db: shared as Database }),
    });
    id = await server.create();
    hangs = true;
  });
  afterAll(async () => {
    hangs = false;
    await server.dispose();
  });

  it.each([
    ['GET', '/v1/sandboxes'],
    ['GET', '/v1/sandboxes/{id}'],
    ['POST', '/v1/sandboxes'],
    ['POST', '/v1/sandboxes/{id}/pause'],
    ['DELETE', '/v1/sandboxes/{id}'],
    ['GET', '/v1/sandboxes/{id}/checkpoints'],
    ['GET', '/v1/sandboxes/{id}/files?path=a'],
    ['GET', '/v1/events'],
    ['GET', '/v1/keys'],
  ] as const)('%s %s is answered within its deadline', async (method, path) => {
    const response = await server.ask(method, path.replace('{id}', id));
    expect([response.statusCode, errorIn(response)]).toMatchObject([
      504,
      { code: 'timeout', retryable: true },
    ]);
    expect(response.headers['x-request-id']).toMatch(/^req_/);
  });

  it('the health endpoint says so', async () => {
    const response = await server.ask('GET', '/health');
    expect([response.statusCode, response.json()]).toMatchObject([
      503,
      { status: 'degraded', database: 'unavailable' },
    ]);
  });
});

describe('when the caller sends only half of a body', () => {
  it('the request is answered and the connection is closed', async () => {
    const server = await testServer({ settings: SHORT });
    const { port } = new URL(await server.listen());
    const socket = connect(Number(port), '127.0.0.1');
    await once(socket, 'connect');
    const head = `Host: x\r\nX-API-Key: ${server.keys.default}\r\nContent-Type: application/json\r\nContent-Length: 100`;
    socket.write(`POST /v1/sandboxes HTTP/1.1\r\n${head}\r\n\r\n{"name":`);
    const answer = await text(socket);
    expect(answer).toMatch(/^HTTP\/1.1 504 [\s\S]*connection: close[\s\S]*"code":"timeout"/i);
    await server.dispose();
  });
});
