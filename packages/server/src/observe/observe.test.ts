import { TorporError } from '@torpor/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorIn, type TestServer, testServer } from '../../testing/test-server.ts';
import { watchLedger } from './ledger-watch.ts';
import { openLog } from './log.ts';
import { Metrics } from './metrics.ts';
import { reportTo } from './report.ts';

const KEY = 'deadbeef'.repeat(8);
const PLANTED = 'planted-secret-value';

function logged(write: (log: ReturnType<typeof openLog>) => void): string {
  const lines: string[] = [];
  write(openLog({ destination: { write: (line: string) => void lines.push(line) } }));
  return lines.join('');
}

describe('the log', () => {
  it.each([
    [
      'by the name of the field',
      { headers: { authorization: PLANTED, 'x-api-key': PLANTED, cookie: PLANTED } },
    ],
    ['of tokens', { token: PLANTED, accessToken: PLANTED, nested: [{ password: PLANTED }] }],
    ['of environments', { request: { env: { API_TOKEN: PLANTED }, envs: { A: PLANTED } } }],
    ['of input', { stdin: PLANTED }],
    ['in a message', { error: new Error(`the key e2b_${KEY} was refused`) }],
    ['in a cause', { error: new TorporError('internal', 'x', { cause: new Error(`Bearer ${PLANTED}`) }) }],
    ['in a signed URL', { url: `http://x/files?path=a&signature=${PLANTED}&user=u` }],
    ['in the URL of a database', { message: `cannot reach postgres://torpor:${PLANTED}@db:5432/x` }],
  ])('hides secrets %s (R114)', (_, facts) => {
    const text = logged((log) => log.info(facts, 'something happened'));
    expect(text).not.toContain(PLANTED);
    expect(text).not.toContain(KEY);
    expect(text).toContain('[hidden]');
    expect(() => JSON.parse(text)).not.toThrow();
  });

  it('hides secrets in messages', () => {
    expect(logged((log) => log.info(`made key ${KEY}`))).not.toContain(KEY);
  });

  it('keeps other values', () => {
    const text = logged((log) =>
      log.info({ sandboxId: 'sbx_a', env: { PATH: '/bin' }, error: new Error('why') }, 'x'),
    );
    expect(JSON.parse(text)).toMatchObject({
      level: 'info',
      sandboxId: 'sbx_a',
      env: { PATH: '[hidden]' },
      error: { type: 'Error', message: 'why', stack: expect.stringContaining('observe.test') },
    });
  });
});

describe('a request', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await testServer();
  });
  afterAll(() => server.dispose());
  const lineOf = (requestId: unknown) =>
    server.log
      .map((line) => JSON.parse(line))
      .find((line) => line.event === 'request' && line.requestId === requestId);

  it('has one log line with all its ids (R102)', async () => {
    const created = await server.ask('POST', '/v1/sandboxes', { body: {} });
    const { id } = created.json();
    expect(lineOf(created.headers['x-request-id'])).toMatchObject({
      method: 'POST',
      route: '/v1/sandboxes',
      status: 201,
      durationMs: expect.any(Number),
      org: 'default',
      keyId: expect.stringMatching(/^key_/),
      sandboxId: id,
      operationId: expect.stringMatching(/^op_/),
    });
    const paused = await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    expect(lineOf(paused.headers['x-request-id'])).toMatchObject({ operationId: paused.json().operation.id });
    const missing = await server.ask('GET', '/v1/sandboxes/sbx_aaaaaaaaaaaaaaaaaaaa');
    expect(lineOf(missing.headers['x-request-id'])).toMatchObject({ status: 404, code: 'not_found' });
  });

  it('names its own operation also when another request is served at the same time (R102)', async () => {
    const both = await Promise.all([1, 2].map(() => server.ask('POST', '/v1/sandboxes', { body: {} })));
    for (const created of both) {
      const { operationId } = lineOf(created.headers['x-request-id']);
      const operation = await server.ask('GET', `/v1/operations/${operationId}`);
      expect(operation.json()).toMatchObject({ kind: 'create', sandboxId: created.json().id });
    }
  });

  it('leaves none of its secrets in the log or in errors (R114)', async () => {
    const env = { API_TOKEN: PLANTED };
    const id = await server.create({ env });
    const key = server.keys.default;
    await server.ask('POST', `/v1/sandboxes/${id}/exec`, { body: { command: 'true', env, stdin: PLANTED } });
    await server.ask('POST', '/v1/sandboxes', { body: { env: { 'bad name': PLANTED } } });
    await server.ask('GET', `/v1/sandboxes/${id}/files?path=a&signature=${PLANTED}`);
    await server.ask('GET', `/v1/nothing?token=${PLANTED}`, { headers: { cookie: PLANTED } });
    const wrong = await server.ask('GET', '/v1/sandboxes', { key: `${key}0` });
    expect(errorIn(wrong).code).toBe('unauthenticated');
    const all = server.log.join('');
    expect(all).toContain(id);
    for (const secret of [PLANTED, key, server.keys.other]) expect(all).not.toContain(secret);
  });

  it('is counted, without ids in the labels (R115)', async () => {
    const id = await server.create();
    await server.ask('GET', `/v1/sandboxes/${id}`);
    const { body, headers } = await server.ask('GET', '/metrics');
    expect(headers['content-type']).toContain('text/plain');
    expect(body).toMatch(
      /torpor_http_requests_total\{method="GET",route="\/v1\/sandboxes\/:id",status="200"\} [1-9]/,
    );
    expect(body).toMatch(/torpor_http_request_seconds_bucket\{/);
    expect(body).not.toMatch(/sbx_/);
  });
});

describe('the memory of the server', () => {
  it('is shown by the metrics: resident, heap and buffers (R115)', async () => {
    const text = await new Metrics().registry.metrics();
    for (const name of [
      'process_resident_memory_bytes',
      'nodejs_heap_size_used_bytes',
      'nodejs_heap_size_total_bytes',
      'nodejs_external_memory_bytes',
    ])
      expect(text).toMatch(new RegExp(`^${name} [1-9]`, 'm'));
  });
});

describe('what happens to sandboxes', () => {
  it('is logged and counted from the ledger, by the server whose operation it was (R115)', async () => {
    const server = await testServer();
    const { db } = server.world;
    const lines: string[] = [];
    const metrics = new Metrics({ process: false });
    const log = openLog({ destination: { write: (line: string) => void lines.push(line) } });
    const stop = await watchLedger({ db, serverId: 'server-1', log, metrics });
    const others = new Metrics({ process: false });
    const stopOther = await watchLedger({
      db,
      serverId: 'another',
      log: openLog({ level: 'silent' }),
      metrics: others,
    });

    const id = await server.create();
    await server.ask('POST', `/v1/sandboxes/${id}/pause`);
    server.runtime.build = 'build-2';
    const resumed = await server.ask('POST', `/v1/sandboxes/${id}/resume`, { body: { fallback: ['files'] } });
    expect(resumed.json()).toMatchObject({ source: { kind: 'files' }, lost: ['processes'] });
    await stop();
    await stopOther();

    const text = await metrics.registry.metrics();
    expect(text).toMatch(/torpor_events_total\{type="sandbox.paused"\} 1/);
    expect(text).toMatch(/torpor_events_total\{type="sandbox.resumed"\} 1/);
    expect(text).toMatch(/torpor_fallbacks_total\{kind="resume"\} 1/);
    expect(text).toMatch(/torpor_starts_total\{source="files"\} 1/);
    expect(text).toMatch(/torpor_losses_total\{what="processes"\} [12]/);
    expect(text).toMatch(/torpor_lifecycle_seconds_count\{event="sandbox.paused"\} 1/);
    expect(await others.registry.metrics()).not.toMatch(/sandbox.paused/);
    const paused = lines.map((line) => JSON.parse(line)).find(({ event }) => event === 'sandbox.paused');
    expect(paused).toMatchObject({
      org: 'default',
      sandboxId: id,
      operationId: expect.stringMatching(/^op_/),
    });
    await server.dispose();
  });

  it('is reported with its error, and counted without its ids', async () => {
    const metrics = new Metrics({ process: false });
    const text = logged((log) => {
      const report = reportTo(log, metrics);
      report(`destroying the paused instance of sbx_${'a'.repeat(20)} failed`, { error: new Error('why') });
      report('clock jumped', { byMs: 5 });
    });
    expect(text).toMatch(/"level":"warn"[^\n]*"message":"why"[^\n]*\n[^\n]*"level":"info"[^\n]*"byMs":5/);
    const { values } = await metrics.reports.get();
    expect(values.map(({ labels }) => labels.what)).toEqual([
      'destroying the paused instance failed',
      'clock jumped',
    ]);
  });
});
