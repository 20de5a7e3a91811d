/** Traces, as a collector receives them over OTLP. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { TorporError } from '@torpor/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { testGateway } from '../../testing/test-gateway.ts';
import { type TestServer, testServer } from '../../testing/test-server.ts';
import { openTracing, type ServerTracing, tracingOff } from './tracing.ts';

interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
  readonly status: { readonly code?: number };
}

/** A receiver of OTLP over HTTP. */
async function collector() {
  const requests: { readonly path: string; readonly type: string; readonly body: Buffer }[] = [];
  const server = createServer(async (request, response) => {
    const { url: path = '', headers } = request;
    requests.push({ path, type: headers['content-type'] ?? '', body: await buffer(request) });
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    spans: (): ReceivedSpan[] =>
      requests.flatMap(({ body }) => {
        const { resourceSpans } = JSON.parse(String(body)) as {
          resourceSpans: { scopeSpans: { spans: ReceivedSpan[] }[] }[];
        };
        return resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans));
      }),
    close: async () => {
      server.close();
      await once(server, 'close');
    },
  };
}

function attributesOf({ attributes }: ReceivedSpan): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}

/** The spans within another one, in the order in which they began. */
function within(spans: readonly ReceivedSpan[], parent: ReceivedSpan | undefined): ReceivedSpan[] {
  return spans
    .filter(({ parentSpanId }) => parentSpanId === parent?.spanId)
    .sort((a, b) => (BigInt(a.startTimeUnixNano) < BigInt(b.startTimeUnixNano) ? -1 : 1));
}

const names = (spans: readonly ReceivedSpan[]) => spans.map(({ name }) => name);

let received: Awaited<ReturnType<typeof collector>>;
let tracing: ServerTracing;
let server: TestServer;
const reports: string[] = [];
/** The exporter reads the variables of the process. */
async function open(env: Readonly<Record<string, string>>): Promise<ServerTracing> {
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  return openTracing(env, { version: '1', serverId: 'test', report: (what) => void reports.push(what) });
}
beforeAll(async () => {
  received = await collector();
  tracing = await open({
    OTEL_EXPORTER_OTLP_ENDPOINT: received.url,
    OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
    OTEL_BSP_SCHEDULE_DELAY: '20',
  });
  server = await testServer({ tracing, wrapApp: (ctx) => ({ gateway: testGateway(ctx) }) });
});
afterEach(() => vi.unstubAllEnvs());
afterAll(async () => {
  await server.dispose();
  await tracing.stop();
  await received.close();
});

/** Waits until the operation of a sandbox and the span around it were received. */
async function traceOf(
  kind: string,
  sandboxId: string,
): Promise<{ all: ReceivedSpan[]; span: ReceivedSpan }> {
  const find = () =>
    received
      .spans()
      .find((span) => span.name === kind && attributesOf(span)['torpor.sandbox.id'] === sandboxId);
  await expect.poll(find, { timeout: 10_000 }).toBeDefined();
  const span = find() as ReceivedSpan;
  const all = () => received.spans().filter(({ traceId }) => traceId === span.traceId);
  if (span.parentSpanId) await expect.poll(() => names(all()).length, { timeout: 10_000 }).toBeGreaterThan(1);
  return { all: all(), span };
}

describe('the trace of a pause', () => {
  it('goes from the request of the caller to the seal, with every phase', async () => {
    const id = await server.create();
    const caller = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' };
    const headers = { traceparent: `00-${caller.traceId}-${caller.spanId}-01` };
    const answer = await server.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {}, headers });
    const operationId = answer.json<{ operation: { id: string } }>().operation.id;
    await expect
      .poll(() => names(received.spans()), { timeout: 10_000 })
      .toContain('POST /v1/sandboxes/:id/pause');

    const all = received.spans().filter(({ traceId }) => traceId === caller.traceId);
    const request = all.find(({ parentSpanId }) => parentSpanId === caller.spanId);
    expect(request?.name).toBe('POST /v1/sandboxes/:id/pause');
    expect(attributesOf(request as ReceivedSpan)).toMatchObject({
      'http.response.status_code': 200,
      'torpor.sandbox.id': id,
      'torpor.operation.id': operationId,
      'torpor.request.id': answer.headers['x-request-id'],
    });
    const [operation, ...others] = within(all, request);
    expect(others).toEqual([]);
    expect(operation?.name).toBe('pause');
    expect(attributesOf(operation as ReceivedSpan)).toMatchObject({
      'torpor.sandbox.id': id,
      'torpor.operation.id': operationId,
      'torpor.operation.outcome': 'succeeded',
      'torpor.operation.reason': 'request',
      'torpor.checkpoint.id': expect.stringMatching(/^ckpt_/),
    });
    expect(names(within(all, operation))).toEqual([
      'accept',
      'drain',
      'sync',
      'freeze',
      'capture',
      'seal',
      'commit',
      'open',
    ]);
  });

  it('says which phase failed, and with which code', async () => {
    const id = await server.create();
    const capture = vi
      .spyOn(server.runtime, 'capture')
      .mockRejectedValueOnce(new TorporError('storage_full', 'The disk is full.'));
    await server.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {} });
    capture.mockRestore();
    const { all, span } = await traceOf('pause', id);
    expect(attributesOf(span)).toMatchObject({
      'torpor.operation.outcome': 'failed',
      'error.type': 'storage_full',
    });
    const phases = within(all, span);
    expect(names(phases)).toEqual(['accept', 'drain', 'sync', 'freeze', 'capture', 'undo']);
    const failed = phases.filter(({ status }) => status.code === 2);
    expect(failed.map((phase) => [phase.name, attributesOf(phase)['error.type']])).toEqual([
      ['capture', 'storage_full'],
    ]);
  });

  it('begins by itself when no request asked for the pause', async () => {
    const id = await server.create({ timeoutSeconds: 1 });
    await server.world.db.transaction((tx) =>
      tx.query('UPDATE sandboxes SET ends_at = 1 WHERE id = $1', [id]),
    );
    await server.ctx.engine.sweep();
    const { span } = await traceOf('pause', id);
    expect(span.parentSpanId ?? '').toBe('');
    expect(attributesOf(span)).toMatchObject({ 'torpor.operation.reason': 'timeout' });
  });
});

describe('other traces', () => {
  it('show a wake of the gateway with the phases of its resume, outside of the visitor’s trace', async () => {
    const id = await server.create();
    await server.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {} });
    const visitor = '1af7651916cd43dd8448eb211c80319c';
    const visit = new AbortController();
    const visited = fetch(`${await server.listen()}/`, {
      headers: {
        'torpor-sandbox': id,
        'torpor-port': '3000',
        'x-api-key': server.keys.default,
        traceparent: `00-${visitor}-b7ad6b7169203331-01`,
      },
      signal: visit.signal,
    }).catch(() => {});
    const { all, span } = await traceOf('resume', id);
    visit.abort();
    await visited;
    const wake = all.find(({ spanId }) => spanId === span.parentSpanId);
    expect(wake?.name).toBe('wake');
    expect(wake?.traceId).not.toBe(visitor);
    expect(names(within(all, span))).toEqual([
      'accept',
      'clear',
      'inspect',
      'start',
      'observe',
      'commit',
      'open',
    ]);
  });

  it('hold the children of a fork within the fork', async () => {
    const id = await server.create();
    await server.ask('POST', `/v1/sandboxes/${id}/fork`, { body: { count: 2 } });
    const { span } = await traceOf('fork', id);
    await expect
      .poll(() => names(within(received.spans(), span)).filter((name) => name === 'create'), {
        timeout: 10_000,
      })
      .toHaveLength(2);
  });

  it('say that a request was refused before it became an operation', async () => {
    const id = await server.create();
    await server.ask('DELETE', `/v1/sandboxes/${id}`);
    expect((await server.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {} })).statusCode).toBe(410);
    const { all, span } = await traceOf('pause', id);
    expect(attributesOf(span)).toMatchObject({
      'torpor.operation.outcome': 'refused',
      'error.type': 'killed',
    });
    expect(names(within(all, span))).toEqual(['accept']);
  });

  it('are not begun by a caller without a key', async () => {
    const before = received.spans().length;
    await server.ask('GET', '/v1/sandboxes', { key: null });
    await server.ask('GET', '/v1/runtimes');
    await expect
      .poll(() => names(received.spans().slice(before)), { timeout: 10_000 })
      .toEqual(['GET /v1/runtimes']);
  });
});

describe('the variables of OpenTelemetry', () => {
  it('send protobuf by default', async () => {
    const own = await collector();
    const byDefault = await open({ OTEL_EXPORTER_OTLP_ENDPOINT: own.url, OTEL_SERVICE_NAME: 'my-torpor' });
    byDefault.begin('pause', { 'torpor.sandbox.id': 'sbx_1' }).end();
    await byDefault.stop();
    expect(own.requests).toMatchObject([{ path: '/v1/traces', type: 'application/x-protobuf' }]);
    expect(String(own.requests[0]?.body)).toMatch(/my-torpor.*pause.*sbx_1/s);
    await own.close();
  });

  it('choose the sampler', async () => {
    const own = await collector();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: own.url, OTEL_TRACES_SAMPLER: 'always_off' };
    const sampled = await open(env);
    sampled.begin('pause').end();
    await sampled.stop();
    expect(own.requests).toEqual([]);
    await own.close();
  });

  it.each([
    { OTEL_TRACES_EXPORTER: 'zipkin' },
    { OTEL_TRACES_EXPORTER: 'otlp', OTEL_TRACES_SAMPLER: 'sometimes' },
    { OTEL_TRACES_EXPORTER: 'otlp', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' },
    { OTEL_TRACES_EXPORTER: 'otlp', OTEL_BSP_SCHEDULE_DELAY: 'soon' },
  ])('are refused when they cannot be honoured: %o', async (env) => {
    await expect(open(env)).rejects.toMatchObject({ code: 'invalid_request' });
  });

  it.each([
    {},
    { OTEL_TRACES_EXPORTER: 'none', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x' },
    { OTEL_SDK_DISABLED: 'true', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x' },
  ])('leave tracing off: %o', async (env) => {
    expect(await open(env)).toBe(tracingOff);
  });

  it('load nothing of the SDK when they are absent', () => {
    const program = `
      import { registerHooks } from 'node:module';
      const loaded = [];
      registerHooks({ resolve(name, context, next) {
        if (/^@opentelemetry\\/(?!api$)/.test(name)) loaded.push(name);
        return next(name, context);
      } });
      const { openTracing } = await import(${JSON.stringify(join(import.meta.dirname, 'tracing.ts'))});
      await import(${JSON.stringify(join(import.meta.dirname, '../start.ts'))});
      const before = loaded.length;
      const options = { version: '1', serverId: 'x', report: () => {} };
      await openTracing({}, options);
      const off = loaded.length;
      await openTracing({ OTEL_TRACES_EXPORTER: 'otlp' }, options);
      console.log(JSON.stringify({ before, off, on: loaded.length > 0 }));
      process.exit();`;
    const args = ['--input-type=module', '-e', program];
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual({ before: 0, off: 0, on: true });
  });
});

describe('a collector that is down', () => {
  it('disturbs no request and does not delay the stop', async () => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9', OTEL_BSP_SCHEDULE_DELAY: '10' };
    const lost = await open(env);
    const other = await testServer({ tracing: lost });
    const id = await other.create();
    expect((await other.ask('POST', `/v1/sandboxes/${id}/pause`, { body: {} })).statusCode).toBe(200);
    expect((await other.ask('DELETE', `/v1/sandboxes/${id}`)).statusCode).toBe(200);
    await other.dispose();
    reports.length = 0;
    await lost.stop();
    expect(reports.some((what) => /traces could not be sent/.test(what))).toBe(true);
  });
});
