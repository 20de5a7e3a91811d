/** Traces of a real server at a real OpenTelemetry Collector (`npm run lab:setup collector`). */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { makeDataDir, startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { collectorProgram } from './lab-program.mjs';

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly startTimeUnixNano: string;
}

/** A line of the exporter: OTLP as JSON. */
interface Line {
  readonly resourceSpans?: readonly {
    readonly resource: { readonly attributes?: readonly { readonly key: string; readonly value: object }[] };
    readonly scopeSpans: readonly { readonly spans: readonly Span[] }[];
  }[];
}

const runtime = process.getuid?.() === 0 ? 'gvisor' : 'process';
const isMissing = !existsSync(collectorProgram());
if (isMissing) console.log('The collector of the lab is not built (npm run lab:setup collector).');

describe.skipIf(isMissing)('at a real collector', () => {
  let dataDir: Awaited<ReturnType<typeof makeDataDir>>;
  let collector: ChildProcess;
  let server: TorporProcess;
  let file: string;
  beforeAll(async () => {
    dataDir = await makeDataDir();
    file = join(dataDir.path, 'traces.json');
    const endpoint = `127.0.0.1:${await freePort()}`;
    const config = join(dataDir.path, 'collector.json');
    await writeFile(config, JSON.stringify(collectorConfig(endpoint, file)));
    collector = spawn(collectorProgram(), [`--config=${config}`], { stdio: 'ignore' });
    await vi.waitFor(() => ask(`http://${endpoint}/v1/traces`), { timeout: 30_000 });
    const env = {
      TORPOR_LOG_LEVEL: 'error',
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://${endpoint}`,
      OTEL_SERVICE_NAME: 'torpor-at-home',
      OTEL_BSP_SCHEDULE_DELAY: '100',
    };
    server = await startTorpor(dataDir.path, env, runtime);
  }, 120_000);
  afterAll(async () => {
    await server?.end();
    collector?.kill('SIGTERM');
    await dataDir?.remove();
  }, 120_000);

  /** All that was received so far. A line that is being written has no end yet. */
  const received = async (): Promise<Line[]> => {
    const text = await readFile(file, 'utf8').catch(() => '');
    return text
      .slice(0, text.lastIndexOf('\n') + 1)
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Line);
  };
  const spansOf = async (traceId: string): Promise<Span[]> =>
    (await received())
      .flatMap(({ resourceSpans = [] }) => resourceSpans.flatMap(({ scopeSpans }) => scopeSpans))
      .flatMap(({ spans }) => spans)
      .filter((span) => span.traceId === traceId)
      .sort((a, b) => (BigInt(a.startTimeUnixNano) < BigInt(b.startTimeUnixNano) ? -1 : 1));

  it('a pause is one trace, from the HTTP request of the caller to the seal', async () => {
    const { id } = await server.torpor.sandboxes.create();
    const caller = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' };
    const answer = await fetch(`${server.url}/v1/sandboxes/${id}/pause`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${server.apiKey}`,
        'content-type': 'application/json',
        traceparent: `00-${caller.traceId}-${caller.spanId}-01`,
      },
      body: '{}',
    });
    expect(answer.status).toBe(200);
    const request = 'POST /v1/sandboxes/:id/pause';
    await expect.poll(async () => (await spansOf(caller.traceId)).map(({ name }) => name)).toContain(request);
    const spans = await spansOf(caller.traceId);
    const within = (parent: string | undefined) =>
      spans.filter(({ parentSpanId = '' }) => parentSpanId === parent);
    expect(within(caller.spanId).map(({ name }) => name)).toEqual([request]);
    const [operation, ...others] = within(within(caller.spanId)[0]?.spanId);
    expect([operation?.name, others]).toEqual(['pause', []]);
    const phases = within(operation?.spanId).map(({ name }) => name);
    console.log(`one trace of ${spans.length} spans: ${request} > pause > ${phases.join(', ')}`);
    expect(phases).toEqual(expect.arrayContaining(['accept', 'freeze', 'capture', 'seal', 'commit']));
    expect(spans).toHaveLength(2 + phases.length);
    const lines = await received();
    expect(JSON.stringify(lines)).toContain('torpor-at-home');
  });
});

function collectorConfig(endpoint: string, path: string): object {
  return {
    receivers: { otlp: { protocols: { http: { endpoint } } } },
    exporters: { file: { path, flush_interval: '100ms' } },
    service: {
      pipelines: { traces: { receivers: ['otlp'], exporters: ['file'] } },
      telemetry: { metrics: { level: 'none' } },
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Rejects as long as nothing listens there. */
async function ask(url: string): Promise<void> {
  await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' });
}
