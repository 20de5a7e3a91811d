import { Validator } from '@seriousme/openapi-schema-validator';
import { FakeProvider } from '@torpor/builds/testing';
import { systemClock } from '@torpor/engine';
import { type DatabaseKind, databaseKinds } from '@torpor/engine/testing';
import { buildErrorReplySchema, errorReplySchema, isId, TorporError } from '@torpor/protocol';
import fc from 'fast-check';
import type { InjectOptions, LightMyRequestResponse } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type ApiDocument,
  type DocumentedRoute,
  requestsFor,
  routesOf,
} from '../testing/document-requests.ts';
import { testBuilds } from '../testing/test-builds.ts';
import { type TestServer, testServer } from '../testing/test-server.ts';

/** TORPOR_FUZZ=500 sends 500 requests to each route. */
const RUNS = Number(process.env['TORPOR_FUZZ'] ?? 15);
/** Much longer than every time limit that this test sets. */
const PATIENCE_MS = 20_000;

let server: TestServer;
let document: ApiDocument;

async function open(kind: DatabaseKind): Promise<void> {
  server = await testServer({
    kind,
    settings: { lifecycleMs: 5_000, readMs: 2_000 },
    engineSettings: { callMs: 2_000, operationMs: 4_000 },
    // No worker runs, so the builds that are started here stay queued.
    wrapApp: (ctx) => ({
      builds: testBuilds(ctx, new FakeProvider(systemClock), { settings: { maxWaiting: 1_000_000 } }),
    }),
    // Generated commands must never reach a real shell.
    wrap: (_, runtime) => {
      runtime.agent = () => Promise.reject(new TorporError('unreachable', 'There is no agent here.'));
      return {};
    },
  });
  document = (await server.ask('GET', '/v1/openapi.json', { key: null })).json();
}

/** Routes that existing programs rely on. */
const PROMISED = [
  'GET /health',
  'GET /metrics',
  'GET /v1/sandboxes',
  'POST /v1/sandboxes',
  'GET /v1/sandboxes/{id}',
  'DELETE /v1/sandboxes/{id}',
  'POST /v1/sandboxes/{id}/pause',
  'POST /v1/sandboxes/{id}/resume',
  'POST /v1/sandboxes/{id}/fork',
  'POST /v1/sandboxes/{id}/rollback',
  'POST /v1/sandboxes/{id}/retention',
  'POST /v1/sandboxes/{id}/timeout',
  'GET /v1/sandboxes/{id}/checkpoints',
  'POST /v1/sandboxes/{id}/checkpoints',
  'POST /v1/sandboxes/{id}/exec',
  'GET /v1/sandboxes/{id}/files',
  'PUT /v1/sandboxes/{id}/files',
  'DELETE /v1/sandboxes/{id}/files',
  'GET /v1/sandboxes/{id}/processes',
  'GET /v1/sandboxes/{id}/events',
  'GET /v1/events',
  'GET /v1/operations',
  'GET /v1/operations/{id}',
  'GET /v1/checkpoints/{id}',
  'DELETE /v1/checkpoints/{id}',
  'POST /v1/checkpoints/{id}/verify',
  'GET /v1/runtimes',
  'GET /v1/templates',
  'POST /v1/templates',
  'GET /v1/templates/{name}',
  'DELETE /v1/templates/{name}',
  'GET /v1/sessions',
  'POST /v1/sessions',
  'GET /v1/sessions/{id}',
  'DELETE /v1/sessions/{id}',
  'POST /v1/sessions/{id}/rebind',
  'GET /v1/sessions/{id}/turns',
  'POST /v1/sessions/{id}/turns',
  'GET /v1/sessions/{id}/turns/{turn}',
  'POST /api/generation/start',
  'GET /api/generation/{id}/status',
  'POST /api/generation/{id}/cancel',
  'POST /api/generation/{id}/resume',
  'POST /api/generation/{id}/snapshot',
  'POST /api/generation/{id}/rebuild',
  'GET /api/generation/{id}/preview-check',
  'POST /api/generation/{id}/preview-viewed',
  'GET /api/generation/{id}/docs',
  'GET /api/generation/{id}/files',
  'POST /api/jobs',
  'GET /api/jobs',
  'GET /api/jobs/{id}',
  'GET /api/jobs/{id}/stream',
  'GET /api/jobs/{id}/events/stream',
  'GET /api/jobs/{id}/logs/stream',
  'GET /api/jobs/{id}/logs',
  'POST /api/jobs/{id}/confirm',
  'GET /v1/keys',
  'POST /v1/keys',
  'DELETE /v1/keys/{id}',
  'GET /v1/orgs',
  'POST /v1/orgs',
  'GET /v1/orgs/{id}',
  'PATCH /v1/orgs/{id}',
  'DELETE /v1/orgs/{id}',
  'GET /v1/usage',
];

describe('the OpenAPI document', () => {
  beforeAll(() => open('sqlite'));
  afterAll(() => server.dispose());

  it('is valid', async () => {
    const result = await new Validator().validate(structuredClone(document) as never);
    expect(result).toMatchObject({ valid: true });
    expect(document.openapi).toBe('3.1.0');
  });

  it('has every route, each with a name, a group, a summary, and its errors', () => {
    const routes = routesOf(document);
    expect(routes.map(nameOf)).toEqual(expect.arrayContaining(PROMISED));
    expect(new Set(routes.map(({ operation }) => operation.operationId)).size).toBe(routes.length);
    for (const { path, operation } of routes) {
      expect(operation, path).toMatchObject({ summary: expect.any(String), tags: [expect.any(String)] });
      if (operation.security === undefined) expect(Object.keys(operation.responses), path).toContain('401');
    }
  });

  it('says what errors look like, with their hints', () => {
    expect(document.components.schemas['ErrorReply']).toMatchObject({
      properties: { error: expect.any(Object) },
    });
    const missing = document.paths['/v1/sandboxes/{id}']?.['get']?.responses['404'];
    expect(missing?.description).toContain('not_found');
  });

  it('has the builds with their own error shape', () => {
    const { post } = document.paths['/api/generation/{id}/resume'] ?? {};
    expect(document.components.schemas['BuildErrorReply']).toMatchObject({
      properties: { detail: expect.any(Object), debug_id: expect.any(Object) },
    });
    expect(post?.responses['503']).toMatchObject({
      description: expect.stringContaining('sandbox_expired'),
      content: { 'application/json': { schema: { $ref: expect.stringContaining('/BuildErrorReply') } } },
    });
    const headersOf = (path: string, method: string) =>
      document.paths[path]?.[method]?.parameters
        ?.filter((one) => one.in === 'header')
        .map(({ name }) => name);
    expect(headersOf('/api/generation/start', 'post')).toEqual(['Idempotency-Key']);
    expect(headersOf('/api/generation/{id}/resume', 'post')).toEqual([]);
    expect(headersOf('/api/jobs/{id}/events/stream', 'get')).toEqual(['Last-Event-ID']);
  });

  it('has both request bodies of a new template', () => {
    const { requestBody, parameters } = document.paths['/v1/templates']?.['post'] ?? {};
    expect(requestBody?.content).toMatchObject({
      'application/json': { schema: { $ref: expect.stringContaining('/CreateTemplate') } },
      'application/x-tar': { schema: { type: 'string', format: 'binary' } },
    });
    expect(parameters?.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['name', 'runtime', 'definition', 'Idempotency-Key']),
    );
  });
});

/** Error codes that guarantee that nothing was changed. */
const UNTOUCHED = ['invalid_request', 'unauthenticated', 'forbidden', 'not_found', 'idempotency_mismatch'];

async function headOfLedger(): Promise<number> {
  const [row] = await server.world.db.query<{ position: number }>('SELECT position FROM ledger_head');
  return row?.position ?? 0;
}

async function send(request: InjectOptions): Promise<LightMyRequestResponse> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('there was no answer')), PATIENCE_MS);
  });
  return Promise.race([server.app.server.inject(request), timeout]).finally(() => clearTimeout(timer));
}

async function holdsFor(request: InjectOptions): Promise<void> {
  const before = await headOfLedger();
  const response = await send(request);
  expect(isId('req', String(response.headers['x-request-id']))).toBe(true);
  if (response.statusCode < 400) return;
  if (isOfBuilds(request)) {
    buildErrorReplySchema.parse(response.json());
    return;
  }
  const { error } = errorReplySchema.parse(response.json());
  expect(error.requestId).toBe(response.headers['x-request-id']);
  if (response.statusCode >= 500) expect(error).toMatchObject({ retryable: true });
  if (UNTOUCHED.includes(error.code)) expect(await headOfLedger()).toBe(before);
}

function isOfBuilds({ url }: InjectOptions): boolean {
  return String(url).startsWith('/api/');
}

/** Things for the paths: running, paused and killed sandboxes, and so on. */
async function populate(): Promise<(path: string) => string[]> {
  const key = server.keys.default;
  const [running, paused, killed] = [await server.create(), await server.create(), await server.create()];
  const { checkpoint, operation } = (await server.ask('POST', `/v1/sandboxes/${paused}/pause`)).json();
  await server.ask('DELETE', `/v1/sandboxes/${killed}`);
  await server.ask('POST', '/v1/templates', { body: { name: 'spare', from: checkpoint.id } });
  const job = await server.ask('POST', '/api/jobs', { body: { project_id: 'p', goal: 'g' } });
  const { job_id } = job.json<{ job_id: string }>();
  await server.ask('POST', `/api/generation/${job_id}/cancel`);
  const made = (await server.ask('POST', '/v1/keys', { key, body: { name: 'spare' } })).json();
  return (path) => {
    if (path.startsWith('/v1/sandboxes')) return [running, paused, killed, running.slice(4)];
    if (path.startsWith('/v1/checkpoints')) return [checkpoint.id];
    if (path.startsWith('/v1/operations')) return [operation.id];
    if (path.startsWith('/v1/templates')) return ['base', 'spare'];
    if (path.startsWith('/api/')) return [job_id];
    if (path.startsWith('/v1/orgs')) return ['default', 'other'];
    return [made.id];
  };
}

describe.each(databaseKinds)('any request to a route, on %s', (kind) => {
  beforeAll(() => open(kind));
  afterAll(() => server.dispose());

  it('gets an answer in the documented shape, and changes nothing when it is refused', {
    timeout: 600_000,
  }, async () => {
    for (const route of routesOf(document)) {
      const ids = await populate();
      const requests = requestsFor(route, document, server.keys.default, ids);
      const property = fc.asyncProperty(requests, holdsFor);
      // There are many of these routes and most are alike. Requests that are refused early do not reach the database.
      const share = kind === 'postgres' ? 1 / 8 : isOfBuilds({ url: route.path }) ? 1 / 4 : 1;
      const numRuns = Math.ceil(RUNS * share);
      await fc.assert(property, { numRuns, endOnFailure: false }).catch((thrown: Error) => {
        throw new Error(`${nameOf(route)}: ${thrown.message}`, { cause: thrown });
      });
    }
  });
});

function nameOf({ method, path }: DocumentedRoute): string {
  return `${method} ${path}`;
}
